#ifndef PARLEY_WORKER_DEVICE_KERNELS_H_
#define PARLEY_WORKER_DEVICE_KERNELS_H_

#include <cstdint>

// What the device's own kernels work on. Plain data: nvcc reads this file too.
namespace parley {

// As what a bucket's values lie there.
enum class BucketType : uint8_t { kFloat32, kBFloat16 };

// Values of which it is said together whether they are all +0.
inline constexpr uint64_t kNonzeroBlock = 1024;

// So many values of a tensor, and where they lie in a bucket of several tensors.
struct Piece {
  float* tensor = nullptr;  // of the device
  uint64_t offset = 0;      // in the bucket, in elements
  uint64_t count = 0;
};

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_KERNELS_H_
