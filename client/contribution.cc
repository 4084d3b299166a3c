#include "client/contribution.h"

#include <cstdint>
#include <cstring>

#include "common/tensor.h"

namespace parley {
namespace {

template <class Round>
void NarrowBy(absl::Span<const std::byte> gradient, std::string* out, Round round) {
  const auto* const from = reinterpret_cast<const float*>(gradient.data());
  auto* const to = reinterpret_cast<uint16_t*>(out->data());  // aligned: a string of many bytes
  const size_t count = gradient.size() / sizeof(float);
  for (size_t i = 0; i < count; ++i) to[i] = round(from[i]);
}

}  // namespace

DataType OnWire(const JobConfig& job) {
  switch (job.gradients_on_wire()) {
    case WIRE_BFLOAT16:
      return BF16;
    case WIRE_FLOAT16:
      return F16;
    default:
      return DATA_TYPE_UNSPECIFIED;
  }
}

size_t BucketBytes(const JobConfig& job) { return size_t{job.bucket_kib()} << 10; }

void Narrow(DataType narrow, absl::Span<const std::byte> gradient, std::string* out) {
  out->resize(gradient.size() / 2);
  if (narrow == F16) return NarrowBy(gradient, out, FloatToHalf);
  NarrowBy(gradient, out, [](float x) { return FloatToBFloat16(x); });
}

}  // namespace parley
