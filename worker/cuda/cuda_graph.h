#ifndef PARLEY_WORKER_CUDA_CUDA_GRAPH_H_
#define PARLEY_WORKER_CUDA_CUDA_GRAPH_H_

#include <ATen/cuda/CUDAGraph.h>

#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "worker/device/device.h"

namespace parley {

// A DeviceGraph by LibTorch's CUDAGraph, as torch.cuda.graph makes them: what is computed while it
// is recorded has memory of the graph's own, which stays there until it goes. Nothing can be
// recorded on CUDA's default stream, which is the compute stream, so LibTorch computes on another
// one meanwhile; the graph runs on the compute stream. The training thread's.
class CudaGraph final : public DeviceGraph {
 public:
  // Of a device, by its name and index.
  CudaGraph(std::string name, int index) : name_(std::move(name)), index_(index) {}
  absl::Status Run(absl::FunctionRef<void()> compute) override;

 private:
  void Record(absl::FunctionRef<void()> compute);
  // What LibTorch has begun for a recording that has failed.
  void Undo() noexcept;

  const std::string name_;
  const int index_;
  const at::cuda::MempoolId_t pool_ = at::cuda::graph_pool_handle();
  at::cuda::CUDAGraph graph_;
  bool is_recorded_ = false;
};

}  // namespace parley

#endif  // PARLEY_WORKER_CUDA_CUDA_GRAPH_H_
