#include "server/parameter_shard/accumulator.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "common/nonzero_blocks.h"
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

// The same of a push of so many elements, of which some may be left out.
void Transfer(const TensorSlice& data, uint64_t elements, double scale, bool add, float* out) {
  if (!data.packed) return Transfer(data.dtype, data.bytes, scale, add, out);
  const size_t element = ElementBytes(data.dtype);
  const auto zero = static_cast<float>(0.0 * scale);  // as it would be if it had come
  size_t taken = 0;
  ForRuns(data.nonzero, 0, elements, [&](uint64_t begin, uint64_t end, bool holds) {
    if (holds) {
      const size_t bytes = (end - begin) * element;
      Transfer(data.dtype, data.bytes.Part(taken, bytes), scale, add, out + begin);
      taken += bytes;
    } else if (add) {
      // Of a sum of -0 it makes +0.
      for (uint64_t i = begin; i < end; ++i) out[i] += zero;
    } else {
      std::fill(out + begin, out + end, zero);
    }
  });
}

// As floats that can be read where they lie, for as long as the step needs them.
bool IsLentAsFloats(const TensorSlice& data) {
  return data.loan.has_value() && data.owner != nullptr && data.dtype == F32 && !data.packed &&
         data.bytes.pieces().size() == 1 &&
         reinterpret_cast<uintptr_t>(data.bytes.pieces().front().data()) % alignof(float) == 0;
}

bool Contains(const std::vector<PartIdentity>& identities, uint32_t contributor, uint32_t part) {
  return std::find(identities.begin(), identities.end(), PartIdentity(contributor, part)) !=
         identities.end();
}

}  // namespace

bool GradientAccumulator::Has(uint32_t contributor, uint32_t part) const {
  return Contains(identities_, contributor, part);
}

absl::Status GradientAccumulator::Add(const PartRange& range, const TensorSlice& data,
                                      double scale) {
  const uint64_t count = range.end - range.begin;
  GatheredGradient& all = Own(/*as_it_is=*/true);
  if (scale == 1 && IsLentAsFloats(data)) {
    identities_.emplace_back(range.contributor, range.part);
    const auto* const values = reinterpret_cast<const float*>(data.bytes.pieces().front().data());
    all.contributions_.push_back({range, values, data.owner, *data.loan, data.nonzero});
    ++all.lent_;
    all.sorted_ = false;
    return absl::OkStatus();
  }
  // What is lent is in no sum before it has been looked at.
  if (apart_ || data.loan.has_value()) {
    std::shared_ptr<Buffer> values = pool_->Take(count * sizeof(float));
    float* const copy = values->as<float>().data();
    Transfer(data, count, scale, /*add=*/false, copy);
    if (data.loan.has_value() && !data.loan->Stands()) return LentIsWritten(range.contributor);
    identities_.emplace_back(range.contributor, range.part);
    if (apart_) {
      all.contributions_.push_back({range, copy, std::move(values), {}, {}});
      all.sorted_ = false;
    } else if (!all.started_ && count == elements_) {
      all.sum_ = std::move(values);
      all.started_ = true;
    } else {
      AddInOrder({copy}, /*fresh=*/false, {Cleared(all) + range.begin, count});
    }
    return absl::OkStatus();
  }
  identities_.emplace_back(range.contributor, range.part);
  if (!all.started_ && count == elements_) {
    if (all.sum_ == nullptr) all.sum_ = pool_->Take(elements_ * sizeof(float));
    all.started_ = true;
    Transfer(data, count, scale, /*add=*/false, all.sum_->as<float>().data());
  } else {
    Transfer(data, count, scale, /*add=*/true, Cleared(all) + range.begin);
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<float>> GradientAccumulator::Sum(
    absl::Span<const uint32_t> contributors) {
  GatheredGradient& all = Own(/*as_it_is=*/true);
  all.Sort();
  if (all.sum_ == nullptr) all.sum_ = pool_->Take(elements_ * sizeof(float));
  const absl::Span<float> sum(all.sum_->as<float>().data(), elements_);
  const bool fresh = !std::exchange(all.started_, true);
  if (absl::Status added = all.AddTo(contributors, 0, fresh, sum); !added.ok()) return added;
  all.contributions_.clear();
  all.lent_ = 0;
  return sum;
}

absl::StatusOr<absl::Span<const float>> GradientAccumulator::SumOf(
    absl::Span<const uint32_t> contributors, uint64_t begin, absl::Span<float> out) {
  if (!gathered_->sorted_) Own(/*as_it_is=*/true).Sort();
  return gathered_->SumOf(contributors, begin, out);
}

std::shared_ptr<const GatheredGradient> GradientAccumulator::Share() {
  Own(/*as_it_is=*/true).Sort();
  shared_ = true;
  return gathered_;
}

void GradientAccumulator::Drop() {
  identities_.clear();
  GatheredGradient& all = Own(/*as_it_is=*/false);
  all.contributions_.clear();
  all.lent_ = 0;
  all.sorted_ = true;
  all.started_ = false;
}

GatheredGradient& GradientAccumulator::Own(bool as_it_is) {
  if (!std::exchange(shared_, false)) return *gathered_;
  auto own = std::make_shared<GatheredGradient>(elements_, apart_);
  if (as_it_is) {
    own->contributions_ = gathered_->contributions_;
    own->lent_ = gathered_->lent_;
    own->sorted_ = gathered_->sorted_;
    own->started_ = gathered_->started_;
    if (own->started_) {
      own->sum_ = pool_->Take(elements_ * sizeof(float));
      std::memcpy(own->sum_->data(), gathered_->sum_->data(), elements_ * sizeof(float));
    }
  }
  gathered_ = std::move(own);
  return *gathered_;
}

float* GradientAccumulator::Cleared(GatheredGradient& all) {
  if (all.sum_ == nullptr) all.sum_ = pool_->Take(elements_ * sizeof(float));
  float* const sum = all.sum_->as<float>().data();
  // -0 is what changes no bit of anything added to it, so the first contribution arrives as it is,
  // whether it is copied or added.
  if (!all.started_) std::fill_n(sum, elements_, -0.0f);
  all.started_ = true;
  return sum;
}

}  // namespace parley
