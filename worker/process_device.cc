#include "worker/process_device.h"

#include <string>
#include <utility>

namespace parley {

absl::Status ProcessDevice::Choose() {
  chosen_ = ChosenDevice::Choose(daemon_.job().device(), DevicePluginPath());
  if (!chosen_.ok()) return chosen_.status();
  if (!chosen_->why_cpu().empty()) {
    daemon_.log().Info("device: AUTO runs on the CPU", {{"why", chosen_->why_cpu()}});
  }
  return absl::OkStatus();
}

absl::Status ProcessDevice::Open(Session& session) {
  if (!chosen_->is_gpu()) return absl::OkStatus();
  auto opened = chosen_->Open(session.member_ordinal());
  if (!opened.ok()) {
    const std::string why(opened.status().message());
    return absl::InternalError(session.Fail(why, /*preempted=*/false).text());
  }
  device_ = *std::move(opened);
  daemon_.log().Info("computes on a GPU", {{"device", device_->name()},
                                           {"shared", chosen_->is_shared() ? "yes" : "no"}});
  Watch();
  return absl::OkStatus();
}

void ProcessDevice::Watch() {
  auto watching = GpuMonitor::Start(chosen_->id(), daemon_.metrics());
  if (watching.ok()) {
    monitor_ = *std::move(watching);
  } else {
    daemon_.log().Info("no metrics of the GPU",
                       {{"why", std::string(watching.status().message())}});
  }
}

}  // namespace parley
