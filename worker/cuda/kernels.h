#ifndef PARLEY_WORKER_CUDA_KERNELS_H_
#define PARLEY_WORKER_CUDA_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "worker/device/kernels.h"

namespace parley {

// Whether this build has the kernels for the calling thread's GPU.
cudaError_t ProbeKernels();

// The kernels of Device's Pack, Unpack, Unscale and CopyNonzero: each gives its work to `stream`
// and returns. Called by CudaDevice; nvcc compiles them.
cudaError_t LaunchPack(const Piece* pieces, size_t count, float scale, BucketType type,
                       std::byte* bucket, cudaStream_t stream);
cudaError_t LaunchUnpack(const Piece* pieces, size_t count, BucketType type,
                         const std::byte* bucket, cudaStream_t stream);
cudaError_t LaunchUnscale(float* values, uint64_t count, float factor, uint32_t* bad,
                          cudaStream_t stream);
// host, nonzero: as the device names the host's memory.
cudaError_t LaunchCopyNonzero(float* host, const float* tensor, uint64_t count, uint8_t* nonzero,
                              cudaStream_t stream);

}  // namespace parley

#endif  // PARLEY_WORKER_CUDA_KERNELS_H_
