#include "worker/cuda/cuda_graph.h"

#include <ATen/core/CachingHostAllocator.h>
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
  // Each where the one before it has failed, too: how far the recording had come is not known.
  const auto attempt = [](absl::FunctionRef<void()> undo) {
    try {
      undo();
      return true;
    } catch (const std::exception&) {
      cudaGetLastError();
      return false;
    }
  };
  // Where CUDA has ended the recording by itself this leaves off at once.
  if (attempt([&] { graph_.capture_end(); })) return;
  // Who says here that nothing was being recorded has ended it already; the memory goes with graph_
  // then, or stays with LibTorch.
  attempt([&] {
    c10::cuda::CUDACachingAllocator::endAllocateToPool(index, pool_);
    c10::cuda::CUDACachingAllocator::releasePool(index, pool_);
  });
  attempt([&] {
    at::HostAllocator* const pinned = at::getHostAllocator(at::kCUDA);
    pinned->end_allocate_to_pool(pool_);
    pinned->release_pool(pool_);
  });
  // The default generator's state believes for good that it is recorded: it gets another one.
  attempt([&] {
    at::Generator generator = at::cuda::detail::getDefaultCUDAGenerator(index);
    const at::Generator fresh = at::cuda::detail::createCUDAGenerator(index);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.graphsafe_set_state(fresh.graphsafe_get_state());
  });
}

void CudaGraph::Record(absl::FunctionRef<void()> compute) {
  // What is recorded comes behind what the compute stream has been given when it runs on that one.
  const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool(
      /*isHighPriority=*/false, static_cast<c10::DeviceIndex>(index_));
  const c10::cuda::CUDAStreamGuard guard(stream);
  // The graph's memory comes on top of what steps before it have left in the allocator.
  c10::cuda::CUDACachingAllocator::emptyCache();
  try {
    // Other threads may ask for events meanwhile.
    graph_.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    compute();
    graph_.capture_end();
  } catch (...) {
    Undo();
    throw;
  }
  // Of the generator's numbers, which are written there before it records: each run writes them,
  // too.
  stream.synchronize();
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
    // A fault of the device is no matter of graphs.
    const cudaError_t compute_stream = cudaStreamQuery(nullptr);
    if (compute_stream != cudaSuccess && compute_stream != cudaErrorNotReady) {
      return CudaStatus(compute_stream, absl::StrCat(name_, ": recording a graph"));
    }
    cudaGetLastError();
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
