#ifndef PARLEY_WORKER_BIND_MODULE_H_
#define PARLEY_WORKER_BIND_MODULE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "client/torch/module_binding.h"
#include "proto/job.pb.h"
#include "worker/device/device.h"
#include "worker/gpu_group.h"
#include "worker/training_binding.h"

namespace parley {

// Ties a network to its session where the job has it computed: HostBinding on the CPU (device:
// null), else DeviceBinding, which moves the network to the device. parley-worker's way, and that
// of a program of one's own (docs/api.md, "Your own program"). Network and device must outlive it.
// group: as DeviceBinding::Options::group.
//
// InvalidArgument where there is nothing to train, or a tensor is none that the service can hold
// (ModuleBinding::Create); on a device, also where a parameter is not float32. ResourceExhausted
// where it has no room: which tensor, how many bytes, on what.
absl::StatusOr<std::unique_ptr<TrainingBinding>> BindTensors(ModuleBinding::Lister network,
                                                             const JobConfig& job,
                                                             ComputeDevice* device,
                                                             GpuGroup* group = nullptr);

// The same of all parameters and buffers that the module has registered. What else its forward
// reads must lie where it computes: ComputeDevice::torch_device(). A scripted module is a handle:
// the binding keeps one.
absl::StatusOr<std::unique_ptr<TrainingBinding>> BindModule(const torch::nn::Module& module,
                                                            const JobConfig& job,
                                                            ComputeDevice* device);
absl::StatusOr<std::unique_ptr<TrainingBinding>> BindModule(const torch::jit::Module& module,
                                                            const JobConfig& job,
                                                            ComputeDevice* device);

}  // namespace parley

#endif  // PARLEY_WORKER_BIND_MODULE_H_
