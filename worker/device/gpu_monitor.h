#ifndef PARLEY_WORKER_DEVICE_GPU_MONITOR_H_
#define PARLEY_WORKER_DEVICE_GPU_MONITOR_H_

#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "common/clock/steady_notification.h"
#include "common/metrics/metrics.h"

namespace parley {

// What the driver knows of a GPU, as metrics: its memory, how busy it is, what crosses its bus,
// each second. All processes on the GPU count. By NVML, NVIDIA's management library, which comes
// with the driver. It has a thread of its own until it ends.
class GpuMonitor {
 public:
  // pci_id: DevicePlugin::id. `metrics` outlives it. FailedPrecondition, with what is missing,
  // where NVML is not there or does not know the GPU: there are no such metrics then.
  static absl::StatusOr<std::unique_ptr<GpuMonitor>> Start(const std::string& pci_id,
                                                           Metrics& metrics);
  ~GpuMonitor();

 private:
  struct Nvml;  // its functions, and the GPU

  GpuMonitor(std::unique_ptr<Nvml> nvml, Metrics& metrics);
  void Look();

  const std::unique_ptr<Nvml> nvml_;
  prometheus::Gauge& memory_used_;
  prometheus::Gauge& memory_total_;
  prometheus::Gauge& utilization_;
  prometheus::Gauge& to_device_;
  prometheus::Gauge& to_host_;
  SteadyNotification over_;
  std::thread thread_;
};

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_GPU_MONITOR_H_
