#include "worker/process_device.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "common/metrics/metrics.h"
#include "worker/stream_trace.h"

namespace parley {
namespace {

// Of so many steps one is looked at: events take the host's time, and the steps of a job are alike.
constexpr uint32_t kTimedEvery = 64;

}  // namespace

absl::Status ProcessDevice::Choose() {
  chosen_ = ChosenDevice::Choose(daemon_.job().device(), DevicePluginPath());
  if (!chosen_.ok()) return chosen_.status();
  if (!chosen_->why_cpu().empty()) {
    daemon_.log().Info("device: AUTO runs on the CPU", {{"why", chosen_->why_cpu()}});
  }
  return absl::OkStatus();
}

absl::Status ProcessDevice::Open(Session& session, std::shared_ptr<Trace> trace) {
  auto opened = chosen_->Open(session.member_ordinal());
  if (!opened.ok()) {
    const std::string why(opened.status().message());
    return absl::InternalError(session.Fail(why, /*preempted=*/false).text());
  }
  if (*opened == nullptr) return absl::OkStatus();
  device_ = *std::move(opened);
  daemon_.log().Info("computes on a GPU", {{"device", device_->name()},
                                           {"shared", chosen_->is_shared() ? "yes" : "no"}});
  KeepTime(std::move(trace));
  Watch();
  return absl::OkStatus();
}

void ProcessDevice::Over() {
  if (timed_ != nullptr) timed_->Flush();
}

void ProcessDevice::KeepTime(std::shared_ptr<Trace> trace) {
  std::array<prometheus::Histogram*, kStreamCount> histograms;
  for (size_t i = 0; i < kStreamCount; ++i) {
    const std::string stream =
        absl::StrReplaceAll(StreamName(static_cast<StreamId>(i)), {{" ", "_"}});
    histograms[i] = &daemon_.metrics().Histogram(
        "parley_gpu_stream_duration_seconds",
        "For how long a stream of the GPU was at work in a step; of some steps.", DurationBounds(),
        {{"stream", stream}});
  }
  TimedDevice::Options options;
  options.every = trace == nullptr ? kTimedEvery : 1;
  options.on_step = [histograms, trace](const std::vector<TimedDevice::Work>& works) {
    const auto busy = BusyTimes(works);
    for (size_t i = 0; i < kStreamCount; ++i) {
      if (busy[i] > absl::ZeroDuration()) histograms[i]->Observe(absl::ToDoubleSeconds(busy[i]));
    }
    if (trace != nullptr) TraceStreams(works, *trace);
  };
  timed_ = std::make_unique<TimedDevice>(*device_, std::move(options));
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
