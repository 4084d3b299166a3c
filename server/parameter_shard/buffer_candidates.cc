#include "server/parameter_shard/buffer_candidates.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/tensor.h"

namespace parley {
namespace {

template <class Raw>
Raw Load(const std::byte* bytes) {
  Raw raw;
  std::memcpy(&raw, bytes, sizeof(Raw));
  return raw;
}

double Value(DataType dtype, const std::byte* bytes) {
  switch (dtype) {
    case F64:
      return Load<double>(bytes);
    case F16:
      return HalfToFloat(Load<uint16_t>(bytes));
    case BF16:
      return BFloat16ToFloat(Load<uint16_t>(bytes));
    default:
      return Load<float>(bytes);
  }
}

template <class Raw>
void Store(Raw raw, std::byte* bytes) {
  std::memcpy(bytes, &raw, sizeof(Raw));
}

void SetValue(DataType dtype, double value, std::byte* bytes) {
  switch (dtype) {
    case F64:
      return Store(value, bytes);
    case F16:
      return Store(FloatToHalf(static_cast<float>(value)), bytes);
    case BF16:
      return Store(FloatToBFloat16(static_cast<float>(value)), bytes);
    default:
      return Store(static_cast<float>(value), bytes);
  }
}

}  // namespace

bool BufferCandidates::Has(uint32_t contributor, uint32_t part) const {
  return std::find(identities_.begin(), identities_.end(), PartIdentity(contributor, part)) !=
         identities_.end();
}

absl::Status BufferCandidates::Add(const PartRange& range, const TensorSlice& data) {
  Candidate candidate = {range, std::string(data.bytes.size(), '\0')};
  data.bytes.CopyTo(reinterpret_cast<std::byte*>(candidate.values.data()));
  if (data.loan.has_value() && !data.loan->Stands()) return LentIsWritten(range.contributor);
  identities_.emplace_back(range.contributor, range.part);
  candidates_.push_back(std::move(candidate));
  return absl::OkStatus();
}

bool BufferCandidates::CopyTo(uint32_t contributor, absl::Span<std::byte> values) const {
  std::vector<const Candidate*> parts;
  for (const Candidate& candidate : candidates_) {
    if (candidate.range.contributor == contributor) parts.push_back(&candidate);
  }
  std::sort(parts.begin(), parts.end(),
            [](const Candidate* a, const Candidate* b) { return a->range.part < b->range.part; });
  for (const Candidate* part : parts) {
    std::memcpy(values.data() + part->range.begin * ElementBytes(dtype_), part->values.data(),
                part->values.size());
  }
  return !parts.empty();
}

bool BufferCandidates::HasAnyOf(absl::Span<const uint32_t> contributors) const {
  return std::any_of(identities_.begin(), identities_.end(), [&](const PartIdentity& who) {
    return std::find(contributors.begin(), contributors.end(), who.first) != contributors.end();
  });
}

void BufferCandidates::TakeFirst(absl::Span<const uint32_t> contributors,
                                 absl::Span<std::byte> values) const {
  for (const uint32_t contributor : contributors) {
    if (CopyTo(contributor, values)) return;
  }
}

void BufferCandidates::Average(absl::Span<const uint32_t> contributors,
                               absl::Span<const double> weights,
                               absl::Span<std::byte> values) const {
  const size_t width = ElementBytes(dtype_);
  std::vector<double> sums(values.size() / width);
  double total = 0;
  for (size_t i = 0; i < contributors.size(); ++i) {
    std::vector<std::byte> offered(values.begin(), values.end());
    if (!CopyTo(contributors[i], absl::MakeSpan(offered))) continue;
    for (size_t element = 0; element < sums.size(); ++element) {
      sums[element] += weights[i] * Value(dtype_, offered.data() + element * width);
    }
    total += weights[i];
  }
  for (size_t element = 0; element < sums.size(); ++element) {
    SetValue(dtype_, sums[element] / total, values.data() + element * width);
  }
}

void BufferCandidates::Drop() {
  identities_.clear();
  candidates_.clear();
}

}  // namespace parley
