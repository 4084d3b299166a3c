#ifndef PARLEY_WORKER_CUDA_CUDA_STATUS_H_
#define PARLEY_WORKER_CUDA_CUDA_STATUS_H_

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace parley {

// "WHAT: what CUDA says (its name)"; Internal. CUDA keeps an error of the thread's until it is
// asked for it, and who gives the next kernel would find this one; those that stay come back.
inline absl::Status CudaStatus(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();
  return absl::InternalError(
      absl::StrCat(what, ": ", cudaGetErrorString(error), " (", cudaGetErrorName(error), ")"));
}

}  // namespace parley

#endif  // PARLEY_WORKER_CUDA_CUDA_STATUS_H_
