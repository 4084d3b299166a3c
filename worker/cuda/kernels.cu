#include <cuda_bf16.h>

#include <algorithm>

#include "worker/cuda/kernels.h"

namespace parley {
namespace {

// Pieces travel with the launch, by value: no table in device memory that somebody would have to
// keep.
constexpr size_t kPiecesOfALaunch = 64;
struct Pieces {
  Piece piece[kPiecesOfALaunch];
};

constexpr unsigned kThreads = 256;
// Values of a piece that one block moves, kThreads at a time: small pieces cost one block each.
constexpr uint64_t kBlockValues = 16 * kThreads;

__device__ float FromBucket(float value) { return value; }
__device__ float FromBucket(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ void ToBucket(float value, float* to) { *to = value; }
__device__ void ToBucket(float value, __nv_bfloat16* to) { *to = __float2bfloat16_rn(value); }

// Calls move(piece, i) for this block's share of a piece: blockIdx.y says which piece, blockIdx.x
// which blocks of it.
template <class Move>
__device__ void ForMyValues(const Pieces& pieces, Move move) {
  const Piece& piece = pieces.piece[blockIdx.y];
  for (uint64_t begin = blockIdx.x * kBlockValues; begin < piece.count;
       begin += gridDim.x * kBlockValues) {
    const uint64_t end = begin + kBlockValues < piece.count ? begin + kBlockValues : piece.count;
    for (uint64_t i = begin + threadIdx.x; i < end; i += kThreads) move(piece, i);
  }
}

// __grid_constant__: else each thread would have a copy of the table, to index it.
template <class Value>
__global__ void PackKernel(const __grid_constant__ Pieces pieces, float scale, Value* bucket) {
  ForMyValues(pieces, [&](const Piece& piece, uint64_t i) {
    const float value = piece.tensor[i];
    ToBucket(scale == 1 ? value : value * scale, bucket + piece.offset + i);
  });
}

template <class Value>
__global__ void UnpackKernel(const __grid_constant__ Pieces pieces, const Value* bucket) {
  ForMyValues(pieces, [&](const Piece& piece, uint64_t i) {
    piece.tensor[i] = FromBucket(bucket[piece.offset + i]);
  });
}

__global__ void UnscaleKernel(float* values, uint64_t count, float factor, uint32_t* bad) {
  const uint64_t stride = uint64_t{gridDim.x} * kThreads;
  for (uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += stride) {
    const float value = values[i];
    // All that write it write the same.
    if (!isfinite(value)) *bad = 1;
    values[i] = value * factor;
  }
}

// A block of threads looks at a block of values at a time. What it writes crosses the bus, in whole
// lines; of a block of zeros that the host has already only its byte does.
__global__ void CopyNonzeroKernel(float* host, const float* tensor, uint64_t count,
                                  uint8_t* nonzero) {
  constexpr unsigned kEach = kNonzeroBlock / kThreads;
  __shared__ bool host_may_hold;
  const uint64_t blocks = (count + kNonzeroBlock - 1) / kNonzeroBlock;
  for (uint64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const uint64_t begin = block * kNonzeroBlock + threadIdx.x;
    float values[kEach];
    unsigned bits = 0;
#pragma unroll
    for (unsigned k = 0; k < kEach; ++k) {
      const uint64_t i = begin + uint64_t{k} * kThreads;
      values[k] = i < count ? tensor[i] : 0;
      bits |= __float_as_uint(values[k]);
    }
    if (threadIdx.x == 0) host_may_hold = nonzero[block] != 0;
    const bool holds = __syncthreads_or(bits != 0) != 0;  // host_may_hold is there, too
    if (holds || host_may_hold) {
#pragma unroll
      for (unsigned k = 0; k < kEach; ++k) {
        const uint64_t i = begin + uint64_t{k} * kThreads;
        if (i < count) host[i] = values[k];
      }
    }
    if (threadIdx.x == 0) nonzero[block] = holds ? 1 : 0;
    __syncthreads();  // all have looked at host_may_hold
  }
}

unsigned Blocks(uint64_t values, uint64_t each) {
  constexpr uint64_t kMost = 1024;
  return static_cast<unsigned>(std::clamp<uint64_t>((values + each - 1) / each, 1, kMost));
}

// launch(grid, pieces) for some of the pieces at a time.
template <class Launch>
cudaError_t InLaunches(const Piece* pieces, size_t count, Launch launch) {
  for (size_t begin = 0; begin < count; begin += kPiecesOfALaunch) {
    const size_t some = std::min(count - begin, kPiecesOfALaunch);
    Pieces table;
    uint64_t largest = 0;
    for (size_t i = 0; i < some; ++i) {
      table.piece[i] = pieces[begin + i];
      largest = std::max(largest, table.piece[i].count);
    }
    launch(dim3(Blocks(largest, kBlockValues), static_cast<unsigned>(some)), table);
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t ProbeKernels() {
  cudaFuncAttributes attributes = {};
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&UnscaleKernel));
}

cudaError_t LaunchPack(const Piece* pieces, size_t count, float scale, BucketType type,
                       std::byte* bucket, cudaStream_t stream) {
  return InLaunches(pieces, count, [&](dim3 grid, const Pieces& table) {
    if (type == BucketType::kFloat32) {
      PackKernel<<<grid, kThreads, 0, stream>>>(table, scale, reinterpret_cast<float*>(bucket));
    } else {
      PackKernel<<<grid, kThreads, 0, stream>>>(table, scale,
                                                reinterpret_cast<__nv_bfloat16*>(bucket));
    }
  });
}

cudaError_t LaunchUnpack(const Piece* pieces, size_t count, BucketType type,
                         const std::byte* bucket, cudaStream_t stream) {
  return InLaunches(pieces, count, [&](dim3 grid, const Pieces& table) {
    if (type == BucketType::kFloat32) {
      UnpackKernel<<<grid, kThreads, 0, stream>>>(table, reinterpret_cast<const float*>(bucket));
    } else {
      UnpackKernel<<<grid, kThreads, 0, stream>>>(table,
                                                  reinterpret_cast<const __nv_bfloat16*>(bucket));
    }
  });
}

cudaError_t LaunchUnscale(float* values, uint64_t count, float factor, uint32_t* bad,
                          cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  UnscaleKernel<<<Blocks(count, kThreads), kThreads, 0, stream>>>(values, count, factor, bad);
  return cudaGetLastError();
}

cudaError_t LaunchCopyNonzero(float* host, const float* tensor, uint64_t count, uint8_t* nonzero,
                              cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  CopyNonzeroKernel<<<Blocks(count, kNonzeroBlock), kThreads, 0, stream>>>(host, tensor, count,
                                                                           nonzero);
  return cudaGetLastError();
}

}  // namespace parley
