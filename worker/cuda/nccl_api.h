#ifndef PARLEY_WORKER_CUDA_NCCL_API_H_
#define PARLEY_WORKER_CUDA_NCCL_API_H_

#include <cuda_runtime_api.h>
#include <nccl.h>

namespace parley {

// The functions that NcclGroup calls: NCCL's and CUDA's own, or a test's, which needs neither.
struct NcclApi {
  ncclResult_t (*init)(ncclComm_t*, int ranks, ncclUniqueId, int rank, ncclConfig_t*) = nullptr;
  ncclResult_t (*async_error)(ncclComm_t, ncclResult_t*) = nullptr;
  ncclResult_t (*group_start)() = nullptr;
  ncclResult_t (*group_end)() = nullptr;
  ncclResult_t (*reduce)(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, int root,
                         ncclComm_t, cudaStream_t) = nullptr;
  ncclResult_t (*broadcast)(const void*, void*, size_t, ncclDataType_t, int root, ncclComm_t,
                            cudaStream_t) = nullptr;
  ncclResult_t (*reduce_scatter)(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t,
                                 ncclComm_t, cudaStream_t) = nullptr;
  ncclResult_t (*all_gather)(const void*, void*, size_t, ncclDataType_t, ncclComm_t,
                             cudaStream_t) = nullptr;
  ncclResult_t (*finalize)(ncclComm_t) = nullptr;
  ncclResult_t (*destroy)(ncclComm_t) = nullptr;
  ncclResult_t (*abort)(ncclComm_t) = nullptr;
  const char* (*error_text)(ncclResult_t) = nullptr;
  cudaError_t (*get_device)(int*) = nullptr;
  cudaError_t (*set_device)(int) = nullptr;
};

}  // namespace parley

#endif  // PARLEY_WORKER_CUDA_NCCL_API_H_
