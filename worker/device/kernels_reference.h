#ifndef PARLEY_WORKER_DEVICE_KERNELS_REFERENCE_H_
#define PARLEY_WORKER_DEVICE_KERNELS_REFERENCE_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "worker/device/kernels.h"

namespace parley {

// What the device's kernels (ComputeDevice::Pack and so on) are to compute, bit for bit but for
// which NaN it is: the same in plain C++, over the host's memory. FakeDevice computes so, and the
// kernels are tested against it.
void PackReference(absl::Span<const Piece> pieces, float scale, BucketType type, std::byte* bucket);
void UnpackReference(absl::Span<const Piece> pieces, BucketType type, const std::byte* bucket);
void UnscaleReference(float* values, uint64_t count, float factor, uint32_t* bad);
void CopyNonzeroReference(float* host, const float* device, uint64_t count, uint8_t* nonzero);

size_t BucketElementBytes(BucketType type);

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_KERNELS_REFERENCE_H_
