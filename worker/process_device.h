#ifndef PARLEY_WORKER_PROCESS_DEVICE_H_
#define PARLEY_WORKER_PROCESS_DEVICE_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/session.h"
#include "client/trace.h"
#include "common/daemon/daemon.h"
#include "worker/device/chosen_device.h"
#include "worker/device/gpu_monitor.h"
#include "worker/device/timed_device.h"

namespace parley {

// The device of a process that computes, a worker or a stage, by its job's `device`: chosen before
// it joins, opened when it knows its place. What there is to say of it goes to the daemon's log and
// metrics. Owned by main, before all that may keep tensors of the device; called on the training
// thread.
class ProcessDevice {
 public:
  // The daemon has read its job, and outlives this.
  explicit ProcessDevice(Daemon& daemon) : daemon_(daemon) {}

  // The codes of ChosenDevice::Choose. Before LibTorch computes anything: only once it looks
  // whether there is CUDA.
  absl::Status Choose();
  // After Choose. Where the GPU cannot be had the job is told, and ends by this error. trace: has
  // what the GPU's streams did, in each step; may be null.
  absl::Status Open(Session& session, std::shared_ptr<Trace> trace);
  // Training is over: takes down what the streams did in the last step.
  void Over();

  // Null: the CPU. After Open.
  ComputeDevice* get() const { return timed_.get(); }
  // The same as the plugin has made it, for what else the plugin does with it.
  ComputeDevice& of_plugin() const { return *device_; }
  // Where get() is one: whether the GPU may be another process's, too.
  bool is_shared() const { return chosen_->is_shared(); }
  const DevicePlugin& plugin() const { return chosen_->plugin(); }

 private:
  void Watch();
  void KeepTime(std::shared_ptr<Trace> trace);

  Daemon& daemon_;
  absl::StatusOr<ChosenDevice> chosen_;
  std::unique_ptr<ComputeDevice> device_;
  std::unique_ptr<TimedDevice> timed_;
  std::unique_ptr<GpuMonitor> monitor_;
};

}  // namespace parley

#endif  // PARLEY_WORKER_PROCESS_DEVICE_H_
