#include "worker/device/kernels_reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/base/casts.h"

namespace parley {
namespace {

// As common/tensor.h has them, which knows protobuf: a plugin must not bring another copy of that.
uint16_t ToBFloat16(float value) {
  const auto bits = absl::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  // To the nearest, ties to even.
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float FromBFloat16(uint16_t value) { return absl::bit_cast<float>(uint32_t{value} << 16); }

}  // namespace

size_t BucketElementBytes(BucketType type) { return type == BucketType::kFloat32 ? 4 : 2; }

void PackReference(absl::Span<const Piece> pieces, float scale, BucketType type,
                   std::byte* bucket) {
  for (const Piece& piece : pieces) {
    std::byte* to = bucket + piece.offset * BucketElementBytes(type);
    for (uint64_t i = 0; i < piece.count; ++i, to += BucketElementBytes(type)) {
      const float value = scale == 1 ? piece.tensor[i] : piece.tensor[i] * scale;
      if (type == BucketType::kFloat32) {
        std::memcpy(to, &value, sizeof value);
      } else {
        const uint16_t rounded = ToBFloat16(value);
        std::memcpy(to, &rounded, sizeof rounded);
      }
    }
  }
}

void UnpackReference(absl::Span<const Piece> pieces, BucketType type, const std::byte* bucket) {
  for (const Piece& piece : pieces) {
    const std::byte* from = bucket + piece.offset * BucketElementBytes(type);
    for (uint64_t i = 0; i < piece.count; ++i, from += BucketElementBytes(type)) {
      if (type == BucketType::kFloat32) {
        std::memcpy(&piece.tensor[i], from, sizeof(float));
      } else {
        uint16_t rounded = 0;
        std::memcpy(&rounded, from, sizeof rounded);
        piece.tensor[i] = FromBFloat16(rounded);
      }
    }
  }
}

void UnscaleReference(float* values, uint64_t count, float factor, uint32_t* bad) {
  for (uint64_t i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) *bad = 1;
    values[i] *= factor;
  }
}

void CopyNonzeroReference(float* host, const float* device, uint64_t count, uint8_t* nonzero) {
  for (uint64_t begin = 0; begin < count; begin += kNonzeroBlock, ++nonzero) {
    const uint64_t end = std::min(count, begin + kNonzeroBlock);
    const bool holds = std::any_of(device + begin, device + end, [](float value) {
      return absl::bit_cast<uint32_t>(value) != 0;
    });
    if (holds || *nonzero != 0) std::copy(device + begin, device + end, host + begin);
    *nonzero = holds ? 1 : 0;
  }
}

}  // namespace parley
