#include "client/contribution.h"

#include <cstdint>
#include <cstring>

#include "common/tensor.h"

namespace parley {
namespace {

// memcpy: neither side need be aligned for Element.
template <class Element, class Product>
void WeighAs(absl::Span<const std::byte> gradient, std::string* out, Product product) {
  for (size_t at = 0; at + sizeof(Element) <= gradient.size(); at += sizeof(Element)) {
    Element element;
    std::memcpy(&element, gradient.data() + at, sizeof(Element));
    element = product(element);
    std::memcpy(out->data() + at, &element, sizeof(Element));
  }
}

template <class Round>
void NarrowBy(absl::Span<const std::byte> gradient, float factor, std::string* out, Round round) {
  const auto* const from = reinterpret_cast<const float*>(gradient.data());
  auto* const to = reinterpret_cast<uint16_t*>(out->data());  // aligned: a string of many bytes
  const size_t count = gradient.size() / sizeof(float);
  for (size_t i = 0; i < count; ++i) to[i] = round(from[i] * factor);
}

}  // namespace

void Weigh(DataType dtype, absl::Span<const std::byte> gradient, double weight, std::string* out) {
  if (weight == 1 || !IsFloat(dtype)) {
    out->assign(reinterpret_cast<const char*>(gradient.data()), gradient.size());
    return;
  }
  out->resize(gradient.size());
  const float factor = static_cast<float>(weight);
  switch (dtype) {
    case F32:
      return WeighAs<float>(gradient, out, [factor](float g) { return g * factor; });
    case F64:
      return WeighAs<double>(gradient, out, [weight](double g) { return g * weight; });
    case F16:
      return WeighAs<uint16_t>(
          gradient, out, [factor](uint16_t g) { return FloatToHalf(HalfToFloat(g) * factor); });
    default:
      return WeighAs<uint16_t>(gradient, out, [factor](uint16_t g) {
        return FloatToBFloat16(BFloat16ToFloat(g) * factor);
      });
  }
}

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

void Narrow(DataType narrow, absl::Span<const std::byte> gradient, double weight,
            std::string* out) {
  out->resize(gradient.size() / 2);
  const float factor = static_cast<float>(weight);
  if (narrow == F16) return NarrowBy(gradient, factor, out, FloatToHalf);
  NarrowBy(gradient, factor, out, [](float x) { return FloatToBFloat16(x); });
}

}  // namespace parley
