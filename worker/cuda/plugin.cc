// What libparley_cuda.so offers to the worker that loads it.
#include "worker/device/plugin.h"

#include <nccl.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/clock/steady_now.h"
#include "worker/cuda/cuda_device.h"
#include "worker/cuda/cuda_status.h"
#include "worker/cuda/nccl_group.h"

namespace parley {
namespace {

absl::StatusOr<int> Count() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorNoDevice) return 0;
  if (error == cudaErrorInsufficientDriver) {
    return absl::FailedPreconditionError(
        absl::StrCat("the NVIDIA driver of this machine is too old for CUDA ",
                     CUDART_VERSION / 1000, ".", CUDART_VERSION % 1000 / 10));
  }
  if (absl::Status status = CudaStatus(error, "counting GPUs"); !status.ok()) return status;
  return count;
}

absl::StatusOr<std::string> Id(int index) {
  char id[32] = {};
  absl::Status status =
      CudaStatus(cudaDeviceGetPCIBusId(id, sizeof id, index), "asking for the GPU's place");
  if (!status.ok()) return status;
  return std::string(id);
}

absl::StatusOr<std::unique_ptr<ComputeDevice>> Open(int index) { return CudaDevice::Open(index); }

absl::StatusOr<std::string> MakeGroupId() {
  ncclUniqueId id = {};
  if (const ncclResult_t result = ncclGetUniqueId(&id); result != ncclSuccess) {
    return absl::InternalError(
        absl::StrCat("an id for a group of GPUs: NCCL says ", ncclGetErrorString(result)));
  }
  return std::string(id.internal, sizeof id.internal);
}

absl::StatusOr<std::unique_ptr<DeviceGroup>> JoinGroup(ComputeDevice& device,
                                                       const DeviceGroup::Options& options,
                                                       absl::Time deadline) {
  static constexpr NcclApi kApi = {
      &ncclCommInitRankConfig,
      &ncclCommGetAsyncError,
      &ncclGroupStart,
      &ncclGroupEnd,
      &ncclReduce,
      &ncclBroadcast,
      &ncclReduceScatter,
      &ncclAllGather,
      &ncclCommFinalize,
      &ncclCommDestroy,
      &ncclCommAbort,
      &ncclGetErrorString,
      &cudaGetDevice,
      &cudaSetDevice,
  };
  auto& own = static_cast<CudaDevice&>(device);
  if (absl::Status status = own.Use(); !status.ok()) return status;
  return NcclGroup::Join(kApi, own.stream(StreamId::kCommunication), options, deadline,
                         NcclGroup::RealClock());
}

}  // namespace
}  // namespace parley

extern "C" __attribute__((visibility("default"))) const parley::DevicePlugin* ParleyDevicePlugin() {
  static constexpr parley::DevicePlugin kPlugin = {parley::DevicePlugin::kVersion,
                                                   __VERSION__,
                                                   &parley::TakeSteadyEpoch,
                                                   &parley::Count,
                                                   &parley::Id,
                                                   &parley::Open,
                                                   &parley::MakeGroupId,
                                                   &parley::JoinGroup};
  return &kPlugin;
}
