#include "worker/cuda/cuda_graph.h"

#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include <exception>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "worker/cuda/cuda_status.h"

namespace parley {
namespace {

// Of what LibTorch throws, without where.
std::string TextOf(const std::exception& error) {
  const auto* const of_torch = dynamic_cast<const c10::Error*>(&error);
  return of_torch == nullptr ? error.what() : of_torch->what_without_backtrace();
}

}  // namespace

void CudaGraph::Undo() noexcept {
  const auto index = static_cast<c10::DeviceIndex>(index_);
  try {
    graph_.capture_end();
    return;
  } catch (const std::exception&) {
    // It leaves off where CUDA has ended the recording by itself.
    cudaGetLastError();
  }
  try {
    c10::cuda::CUDACachingAllocator::endAllocateToPool(index, pool_);
    c10::cuda::CUDACachingAllocator::releasePool(index, pool_);
    // The default generator's state believes for good that it is recorded: it gets another one.
    at::Generator generator = at::cuda::detail::getDefaultCUDAGenerator(index);
    const at::Generator fresh = at::cuda::detail::createCUDAGenerator(index);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.graphsafe_set_state(fresh.graphsafe_get_state());
  } catch (const std::exception&) {
    cudaGetLastError();
  }
}

void CudaGraph::Record(absl::FunctionRef<void()> compute) {
  // Nothing runs there: what is recorded comes behind what the compute stream has been given when
  // it runs on that one.
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool(
      /*isHighPriority=*/false, static_cast<c10::DeviceIndex>(index_)));
  // The graph's memory comes on top of what steps before it have left in the allocator.
  c10::cuda::CUDACachingAllocator::emptyCache();
  // Other threads may ask for events meanwhile.
  graph_.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
  try {
    compute();
    graph_.capture_end();
  } catch (...) {
    Undo();
    throw;
  }
}

absl::Status CudaGraph::Run(absl::FunctionRef<void()> compute) {
  absl::Status status =
      CudaStatus(cudaSetDevice(index_), absl::StrCat(name_, ": choosing the GPU"));
  if (!status.ok()) return status;
  try {
    if (!is_recorded_) {
      Record(compute);
      is_recorded_ = true;
    }
  } catch (const std::exception& error) {
    cudaGetLastError();  // it is not to be found again behind the next launch
    return absl::UnavailableError(TextOf(error));
  }
  try {
    graph_.replay();
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat(name_, ": a graph: ", TextOf(error)));
  }
  return absl::OkStatus();
}

}  // namespace parley
