#ifndef PARLEY_WORKER_CUDA_CUDA_STATUS_H_
#define PARLEY_WORKER_CUDA_CUDA_STATUS_H_

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace parley {

// "WHAT: what CUDA says (its name)"; Internal.
inline absl::Status CudaStatus(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(what, ": ", cudaGetErrorString(error), " (", cudaGetErrorName(error), ")"));
}

}  // namespace parley

#endif  // PARLEY_WORKER_CUDA_CUDA_STATUS_H_
