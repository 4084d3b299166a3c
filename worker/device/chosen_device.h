#ifndef PARLEY_WORKER_DEVICE_CHOSEN_DEVICE_H_
#define PARLEY_WORKER_DEVICE_CHOSEN_DEVICE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/device/gpu_claim.h"
#include "worker/device/plugin.h"

namespace parley {

// Where a worker computes: chosen from its job's `device` before it joins, opened when it knows its
// place among the workers. The main's.
class ChosenDevice {
 public:
  // plugin: libparley_cuda.so's path. FailedPrecondition where the job asks for CUDA and something
  // is missing for it: says what, in one line.
  static absl::StatusOr<ChosenDevice> Choose(Device asked, const std::string& plugin);

  // A GPU, else the CPU.
  bool is_gpu() const { return plugin_ != nullptr; }
  // Why the CPU was chosen where the job leaves it open; else empty.
  const std::string& why_cpu() const { return why_cpu_; }

  // A GPU that no other process of this machine has claimed (gpu_claim.h), the first one from
  // number `ordinal` on; where there is none that number, modulo how many there are: several
  // processes share it then. The claim is this one's. Null where the CPU was chosen. Once, on the
  // thread that will compute.
  absl::StatusOr<std::unique_ptr<ComputeDevice>> Open(uint32_t ordinal);
  // DevicePlugin::id of the one that was opened.
  const std::string& id() const { return id_; }
  // Whether the GPU that was opened may be another process's, too.
  bool is_shared() const { return claim_ == nullptr; }
  // Where is_gpu(); for as long as the process lives.
  const DevicePlugin& plugin() const { return *plugin_; }

 private:
  const DevicePlugin* plugin_ = nullptr;
  int gpus_ = 0;
  std::string why_cpu_;
  std::unique_ptr<GpuClaim> claim_;
  std::string id_;
};

// libparley_cuda.so beside this program.
std::string DevicePluginPath();

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_CHOSEN_DEVICE_H_
