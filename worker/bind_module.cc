#include "worker/bind_module.h"

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include <utility>

#include "client/torch/named_tensors.h"
#include "common/job/job_file.h"
#include "worker/device_binding.h"
#include "worker/host_binding.h"

namespace parley {

absl::StatusOr<std::unique_ptr<TrainingBinding>> BindTensors(ModuleBinding::Lister network,
                                                             const JobConfig& job,
                                                             ComputeDevice* device,
                                                             GpuGroup* group) {
  if (device == nullptr) return HostBinding::Make(std::move(network));
  DeviceBinding::Options options;
  options.patience = StallTimeout(job);
  options.group = group;
  options.leaves_out_zeros = job.cluster().group() <= 1;
  return DeviceBinding::Make(std::move(network), *device, options);
}

absl::StatusOr<std::unique_ptr<TrainingBinding>> BindModule(const torch::nn::Module& module,
                                                            const JobConfig& job,
                                                            ComputeDevice* device) {
  return BindTensors([&module] { return TensorsOf(module); }, job, device);
}

absl::StatusOr<std::unique_ptr<TrainingBinding>> BindModule(const torch::jit::Module& module,
                                                            const JobConfig& job,
                                                            ComputeDevice* device) {
  return BindTensors([module] { return TensorsOf(module); }, job, device);
}

}  // namespace parley
