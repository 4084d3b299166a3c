#include "server/parameter_shard/accumulator.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <tuple>

#include "common/tensor.h"

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

void Transfer(DataType dtype, const TensorBytes& bytes, bool add, float* out) {
  switch (dtype) {
    case F32:
      return Transfer<float>(bytes, add, out, [](float x) { return x; });
    case F64:
      return Transfer<double>(bytes, add, out, [](double x) { return static_cast<float>(x); });
    case F16:
      return Transfer<uint16_t>(bytes, add, out, HalfToFloat);
    case BF16:
      return Transfer<uint16_t>(bytes, add, out, BFloat16ToFloat);
    default:
      return;  // refused before it came here
  }
}

void Add(absl::Span<const float> values, float* __restrict out) {
  for (size_t i = 0; i < values.size(); ++i) out[i] += values[i];
}

bool Contains(const std::vector<PartIdentity>& identities, uint32_t contributor, uint32_t part) {
  return std::find(identities.begin(), identities.end(), PartIdentity(contributor, part)) !=
         identities.end();
}

}  // namespace

bool GradientAccumulator::Has(uint32_t contributor, uint32_t part) const {
  return Contains(identities_, contributor, part);
}

void GradientAccumulator::Add(const PartRange& range, DataType dtype, const TensorBytes& bytes) {
  identities_.emplace_back(range.contributor, range.part);
  const uint64_t count = range.end - range.begin;
  if (apart_) {
    std::shared_ptr<Buffer> values = pool_->Take(count * sizeof(float));
    Transfer(dtype, bytes, /*add=*/false, values->as<float>().data());
    contributions_.push_back({range, std::move(values)});
    return;
  }
  if (!started_ && count == elements_) {
    if (sum_ == nullptr) sum_ = pool_->Take(elements_ * sizeof(float));
    started_ = true;
    return Transfer(dtype, bytes, /*add=*/false, sum_->as<float>().data());
  }
  Transfer(dtype, bytes, /*add=*/true, Cleared() + range.begin);
}

absl::Span<float> GradientAccumulator::Sum(absl::Span<const uint32_t> contributors) {
  float* const sum = Cleared();
  std::sort(contributions_.begin(), contributions_.end(),
            [](const Contribution& a, const Contribution& b) {
              return std::tie(a.range.contributor, a.range.part) <
                     std::tie(b.range.contributor, b.range.part);
            });
  for (const Contribution& contribution : contributions_) {
    const PartRange& range = contribution.range;
    if (!std::binary_search(contributors.begin(), contributors.end(), range.contributor)) continue;
    parley::Add(contribution.values->as<float>(), sum + range.begin);
  }
  contributions_.clear();
  return {sum, elements_};
}

void GradientAccumulator::Drop() {
  identities_.clear();
  contributions_.clear();
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

bool BufferCandidates::Has(uint32_t contributor, uint32_t part) const {
  return Contains(identities_, contributor, part);
}

void BufferCandidates::Add(const PartRange& range, const TensorBytes& bytes) {
  identities_.emplace_back(range.contributor, range.part);
  candidates_.push_back({range, std::string(bytes.size(), '\0')});
  bytes.CopyTo(reinterpret_cast<std::byte*>(candidates_.back().values.data()));
}

bool BufferCandidates::CopyTo(uint32_t contributor, size_t element_bytes, Buffer& values) const {
  std::vector<const Candidate*> parts;
  for (const Candidate& candidate : candidates_) {
    if (candidate.range.contributor == contributor) parts.push_back(&candidate);
  }
  std::sort(parts.begin(), parts.end(),
            [](const Candidate* a, const Candidate* b) { return a->range.part < b->range.part; });
  for (const Candidate* part : parts) {
    std::memcpy(values.data() + part->range.begin * element_bytes, part->values.data(),
                part->values.size());
  }
  return !parts.empty();
}

void BufferCandidates::Drop() {
  identities_.clear();
  candidates_.clear();
}

}  // namespace parley
