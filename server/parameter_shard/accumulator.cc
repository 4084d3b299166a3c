#include "server/parameter_shard/accumulator.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "common/tensor.h"
#include "server/parameter_shard/sum_kernels.h"

namespace parley {
namespace {

// Element i of unaligned memory.
template <class Raw>
Raw Load(const char* bytes, size_t i) {
  Raw raw;
  std::memcpy(&raw, bytes + i * sizeof(Raw), sizeof(Raw));
  return raw;
}

// out[i] = convert(element i), or out[i] += it.
template <class Raw, class Convert>
void TransferPiece(const char* data, size_t count, bool add, float* __restrict out,
                   Convert convert) {
  if (add) {
    for (size_t i = 0; i < count; ++i) out[i] += convert(Load<Raw>(data, i));
  } else {
    for (size_t i = 0; i < count; ++i) out[i] = convert(Load<Raw>(data, i));
  }
}

// The same of bytes that lie in pieces: straight from where they lie, but for an element that two
// or more pieces share.
template <class Raw, class Convert>
void Transfer(const TensorBytes& bytes, bool add, float* out, Convert convert) {
  char shared[sizeof(Raw)];
  size_t there = 0;  // bytes of it
  for (const TensorBytes::Piece piece : bytes.pieces()) {
    const char* data = reinterpret_cast<const char*>(piece.data());
    size_t size = piece.size();
    if (there != 0) {
      const size_t missing = std::min(sizeof(Raw) - there, size);
      std::memcpy(shared + there, data, missing);
      there += missing;
      data += missing;
      size -= missing;
      if (there < sizeof(Raw)) continue;
      TransferPiece<Raw>(shared, 1, add, out++, convert);
    }
    const size_t count = size / sizeof(Raw);
    TransferPiece<Raw>(data, count, add, out, convert);
    out += count;
    there = size - count * sizeof(Raw);
    std::memcpy(shared, data + count * sizeof(Raw), there);
  }
}

// Of elements times `scale`.
void Transfer(DataType dtype, const TensorBytes& bytes, double scale, bool add, float* out) {
  const float factor = static_cast<float>(scale);
  switch (dtype) {
    case F32:
      if (scale == 1) return Transfer<float>(bytes, add, out, [](float x) { return x; });
      return Transfer<float>(bytes, add, out, [factor](float x) { return x * factor; });
    case F64:
      return Transfer<double>(bytes, add, out,
                              [scale](double x) { return static_cast<float>(x * scale); });
    case F16:
      return Transfer<uint16_t>(bytes, add, out,
                                [factor](uint16_t x) { return HalfToFloat(x) * factor; });
    case BF16:
      return Transfer<uint16_t>(bytes, add, out,
                                [factor](uint16_t x) { return BFloat16ToFloat(x) * factor; });
    default:
      return;  // refused before it came here
  }
}

// As floats that can be read where they lie, for as long as the step needs them.
bool IsLentAsFloats(const TensorSlice& data) {
  return data.loan.has_value() && data.owner != nullptr && data.dtype == F32 &&
         data.bytes.pieces().size() == 1 &&
         reinterpret_cast<uintptr_t>(data.bytes.pieces().front().data()) % alignof(float) == 0;
}

bool Contains(const std::vector<PartIdentity>& identities, uint32_t contributor, uint32_t part) {
  return std::find(identities.begin(), identities.end(), PartIdentity(contributor, part)) !=
         identities.end();
}

}  // namespace

absl::Status LentIsWritten(uint32_t contributor) {
  return absl::AbortedError(absl::StrCat("contributor ", contributor,
                                         " has written again what it had lent for this step"));
}

bool GradientAccumulator::Has(uint32_t contributor, uint32_t part) const {
  return Contains(identities_, contributor, part);
}

absl::Status GradientAccumulator::Add(const PartRange& range, const TensorSlice& data,
                                      double scale) {
  const uint64_t count = range.end - range.begin;
  if (scale == 1 && IsLentAsFloats(data)) {
    identities_.emplace_back(range.contributor, range.part);
    const auto* const values = reinterpret_cast<const float*>(data.bytes.pieces().front().data());
    contributions_.push_back({range, values, data.owner, *data.loan});
    ++lent_;
    sorted_ = false;
    return absl::OkStatus();
  }
  // What is lent is in no sum before it has been looked at.
  if (apart_ || data.loan.has_value()) {
    std::shared_ptr<Buffer> values = pool_->Take(count * sizeof(float));
    float* const copy = values->as<float>().data();
    Transfer(data.dtype, data.bytes, scale, /*add=*/false, copy);
    if (data.loan.has_value() && !data.loan->Stands()) return LentIsWritten(range.contributor);
    identities_.emplace_back(range.contributor, range.part);
    if (apart_) {
      contributions_.push_back({range, copy, std::move(values), {}});
      sorted_ = false;
    } else if (!started_ && count == elements_) {
      sum_ = std::move(values);
      started_ = true;
    } else {
      AddInOrder({copy}, /*fresh=*/false, {Cleared() + range.begin, count});
    }
    return absl::OkStatus();
  }
  identities_.emplace_back(range.contributor, range.part);
  if (!started_ && count == elements_) {
    if (sum_ == nullptr) sum_ = pool_->Take(elements_ * sizeof(float));
    started_ = true;
    Transfer(data.dtype, data.bytes, scale, /*add=*/false, sum_->as<float>().data());
  } else {
    Transfer(data.dtype, data.bytes, scale, /*add=*/true, Cleared() + range.begin);
  }
  return absl::OkStatus();
}

void GradientAccumulator::Sort() {
  if (std::exchange(sorted_, true)) return;
  std::sort(contributions_.begin(), contributions_.end(),
            [](const Contribution& a, const Contribution& b) {
              return std::tie(a.range.contributor, a.range.part) <
                     std::tie(b.range.contributor, b.range.part);
            });
}

bool GradientAccumulator::Counts(const Contribution& contribution,
                                 absl::Span<const uint32_t> contributors) const {
  return !apart_ || std::binary_search(contributors.begin(), contributors.end(),
                                       contribution.range.contributor);
}

absl::StatusOr<absl::Span<float>> GradientAccumulator::Sum(
    absl::Span<const uint32_t> contributors) {
  Sort();
  if (sum_ == nullptr) sum_ = pool_->Take(elements_ * sizeof(float));
  const absl::Span<float> sum(sum_->as<float>().data(), elements_);
  const bool fresh = !std::exchange(started_, true);
  if (absl::Status added = AddTo(contributors, 0, fresh, sum); !added.ok()) return added;
  contributions_.clear();
  lent_ = 0;
  return sum;
}

absl::Status GradientAccumulator::AddTo(absl::Span<const uint32_t> contributors, uint64_t begin,
                                        bool fresh, absl::Span<float> out) const {
  const uint64_t end = begin + out.size();
  absl::InlinedVector<const float*, 16> addends;  // in order, that cover all of `out`
  const auto add = [&] {
    if (addends.empty()) return;
    AddInOrder(addends, std::exchange(fresh, false), out);
    addends.clear();
  };
  for (const Contribution& contribution : contributions_) {
    const PartRange& range = contribution.range;
    if (!Counts(contribution, contributors) || range.begin >= end || range.end <= begin) continue;
    if (range.begin <= begin && range.end >= end) {
      addends.push_back(contribution.values + (begin - range.begin));
      continue;
    }
    add();
    if (std::exchange(fresh, false)) AddInOrder({}, /*fresh=*/true, out);
    const uint64_t from = std::max(begin, range.begin);
    const float* const values = contribution.values + (from - range.begin);
    AddInOrder({values}, /*fresh=*/false,
               out.subspan(from - begin, std::min(end, range.end) - from));
  }
  add();
  if (fresh) AddInOrder({}, /*fresh=*/true, out);
  return LentStands(contributors);
}

const GradientAccumulator::Contribution* GradientAccumulator::OnlyOne(
    absl::Span<const uint32_t> contributors, uint64_t from, uint64_t to) const {
  const Contribution* only = nullptr;
  for (const Contribution& contribution : contributions_) {
    const PartRange& range = contribution.range;
    if (!Counts(contribution, contributors) || range.begin >= to || range.end <= from) continue;
    if (started_ || only != nullptr || range.begin > from || range.end < to) return nullptr;
    only = &contribution;
  }
  return only;
}

absl::Status GradientAccumulator::LentStands(absl::Span<const uint32_t> contributors) const {
  for (const Contribution& contribution : contributions_) {
    if (Counts(contribution, contributors) && !contribution.loan.Stands()) {
      return LentIsWritten(contribution.range.contributor);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const float>> GradientAccumulator::SumOf(
    absl::Span<const uint32_t> contributors, uint64_t begin, absl::Span<float> out) {
  Sort();
  const uint64_t end = begin + out.size();
  if (const Contribution* const only = OnlyOne(contributors, begin, end)) {
    if (!only->loan.Stands()) return LentIsWritten(only->range.contributor);
    return absl::Span<const float>(only->values + (begin - only->range.begin), out.size());
  }
  if (started_) {
    std::memcpy(out.data(), sum_->as<float>().data() + begin, out.size() * sizeof(float));
  }
  if (absl::Status added = AddTo(contributors, begin, !started_, out); !added.ok()) return added;
  return out;
}

void GradientAccumulator::Drop() {
  identities_.clear();
  contributions_.clear();
  lent_ = 0;
  sorted_ = true;
  started_ = false;
}

float* GradientAccumulator::Cleared() {
  if (sum_ == nullptr) sum_ = pool_->Take(elements_ * sizeof(float));
  float* const sum = sum_->as<float>().data();
  // -0 is what changes no bit of anything added to it, so the first contribution arrives as it is,
  // whether it is copied or added.
  if (!started_) std::fill_n(sum, elements_, -0.0f);
  started_ = true;
  return sum;
}

}  // namespace parley
