#ifndef PARLEY_WORKER_DEVICE_TIMED_DEVICE_H_
#define PARLEY_WORKER_DEVICE_TIMED_DEVICE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "worker/device/device.h"
#include "worker/device/forwarding_device.h"

namespace parley {

// A device, and when its streams did what they were given: between events before and after each
// copy and kernel, and whatever its user calls one work. In some steps only, since to record an
// event takes the host about a microsecond. Thread-safe, as the device is; BeginStep, EndStep and
// Flush are one thread's.
class TimedDevice final : public ForwardingDevice {
 public:
  struct Work {
    StreamId stream;
    std::string what;
    // By this machine's clock. A work begins when the stream comes to it, and ends when the stream
    // has done it: what the stream waits for in between, the host too, lies within.
    absl::Time begin;
    absl::Time end;
  };
  struct Options {
    uint32_t every = 1;  // of so many steps the last one is looked at
    // All works of such a step, in the order in which they were given; on the thread of the
    // BeginStep or Flush by which they have all ended. Steps are told in their order.
    std::function<void(const std::vector<Work>&)> on_step;
  };
  // The device must outlive it.
  TimedDevice(ComputeDevice& device, Options options);

  // These are its own, and not the device's. BeginStep tells of the steps that have ended.
  void BeginStep() override;
  void EndStep() override;
  uint64_t BeginWork(StreamId stream, absl::string_view what) override;
  void EndWork(uint64_t work) override;
  void Flush();

  absl::Status CopyToHost(StreamId stream, std::byte* host, const std::byte* device,
                          size_t bytes) override {
    const StreamWork work(this, stream, "copy to the host");
    return ForwardingDevice::CopyToHost(stream, host, device, bytes);
  }
  absl::Status CopyToDevice(StreamId stream, std::byte* device, const std::byte* host,
                            size_t bytes) override {
    const StreamWork work(this, stream, "copy to the device");
    return ForwardingDevice::CopyToDevice(stream, device, host, bytes);
  }
  absl::Status CopyPartsToDevice(StreamId stream, absl::Span<const HostPart> parts) override {
    const StreamWork work(this, stream, "copy to the device");
    return ForwardingDevice::CopyPartsToDevice(stream, parts);
  }
  absl::Status CopyOnDevice(StreamId stream, std::byte* to, const std::byte* from,
                            size_t bytes) override {
    const StreamWork work(this, stream, "copy between devices");
    return ForwardingDevice::CopyOnDevice(stream, to, from, bytes);
  }
  absl::Status Clear(StreamId stream, std::byte* memory, size_t bytes) override {
    const StreamWork work(this, stream, "clear");
    return ForwardingDevice::Clear(stream, memory, bytes);
  }
  absl::Status Pack(StreamId stream, absl::Span<const Piece> pieces, float scale, BucketType type,
                    std::byte* bucket) override {
    const StreamWork work(this, stream, "pack");
    return ForwardingDevice::Pack(stream, pieces, scale, type, bucket);
  }
  absl::Status Unpack(StreamId stream, absl::Span<const Piece> pieces, BucketType type,
                      const std::byte* bucket) override {
    const StreamWork work(this, stream, "unpack");
    return ForwardingDevice::Unpack(stream, pieces, type, bucket);
  }
  absl::Status Unscale(StreamId stream, float* values, uint64_t count, float factor,
                       uint32_t* bad) override {
    const StreamWork work(this, stream, "unscale");
    return ForwardingDevice::Unscale(stream, values, count, factor, bad);
  }
  absl::Status CopyNonzero(StreamId stream, float* host, const float* device, uint64_t count,
                           uint8_t* nonzero) override {
    const StreamWork work(this, stream, "copy what is not zero to the host");
    return ForwardingDevice::CopyNonzero(stream, host, device, count, nonzero);
  }

 private:
  struct Given {
    StreamId stream;
    std::string what;
    std::unique_ptr<DeviceEvent> begin;
    std::unique_ptr<DeviceEvent> end;  // nullptr before EndWork
  };
  struct Step {
    // Ties the device's time to this machine's.
    std::unique_ptr<DeviceEvent> base;
    absl::Time base_time;
    uint64_t first = 0;  // the number of given[0]
    std::vector<Given> given;
  };

  // nullptr where the device gives none: then the steps that were looked at are forgotten.
  std::unique_ptr<DeviceEvent> RecordNow(StreamId stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Begins to look at a step, where the device passes an event soon.
  void Look();
  // Of the oldest step; empty where it has not ended.
  std::vector<Work> TakeEnded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TellOfEnded();
  void Forget() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  uint32_t to_next_;  // steps; the thread's that begins them
  absl::Mutex mu_;
  bool looking_ ABSL_GUARDED_BY(mu_) = false;    // at the last one of steps_
  std::deque<Step> steps_ ABSL_GUARDED_BY(mu_);  // not told yet
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 1;       // number of a work
  std::vector<std::unique_ptr<DeviceEvent>> spare_ ABSL_GUARDED_BY(mu_);
};

// For how long each stream had one of these to do, or several within each other.
std::array<absl::Duration, kStreamCount> BusyTimes(absl::Span<const TimedDevice::Work> works);

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_TIMED_DEVICE_H_
