#ifndef PARLEY_WORKER_DEVICE_FORWARDING_DEVICE_H_
#define PARLEY_WORKER_DEVICE_FORWARDING_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "worker/device/device.h"

namespace parley {

// A device that has another one do everything; who derives overrides what goes another way, and
// calls the method of this class for what the other one is to do then. The other device must
// outlive it.
class ForwardingDevice : public ComputeDevice {
 public:
  explicit ForwardingDevice(ComputeDevice& device) : device_(device) {}

  const std::string& name() const override { return device_.name(); }
  std::string torch_device() const override { return device_.torch_device(); }
  absl::StatusOr<Memory> memory() override { return device_.memory(); }
  absl::StatusOr<DeviceBuffer> Allocate(absl::string_view what, size_t bytes) override {
    return device_.Allocate(what, bytes);
  }
  absl::StatusOr<Shared> AllocateShared(absl::string_view what, size_t bytes) override {
    return device_.AllocateShared(what, bytes);
  }
  absl::StatusOr<DeviceBuffer> OpenShared(absl::string_view handle) override {
    return device_.OpenShared(handle);
  }
  absl::StatusOr<DeviceBuffer> AllocatePinned(absl::string_view what, size_t bytes) override {
    return device_.AllocatePinned(what, bytes);
  }
  absl::StatusOr<DeviceBuffer> Pin(absl::string_view what, absl::Span<const std::byte> memory,
                                   bool read_only) override {
    return device_.Pin(what, memory, read_only);
  }
  absl::Status CopyToHost(StreamId stream, std::byte* host, const std::byte* device,
                          size_t bytes) override {
    return device_.CopyToHost(stream, host, device, bytes);
  }
  absl::Status CopyToDevice(StreamId stream, std::byte* device, const std::byte* host,
                            size_t bytes) override {
    return device_.CopyToDevice(stream, device, host, bytes);
  }
  absl::Status CopyPartsToDevice(StreamId stream, absl::Span<const HostPart> parts) override {
    return device_.CopyPartsToDevice(stream, parts);
  }
  absl::Status CopyOnDevice(StreamId stream, std::byte* to, const std::byte* from,
                            size_t bytes) override {
    return device_.CopyOnDevice(stream, to, from, bytes);
  }
  absl::Status Clear(StreamId stream, std::byte* memory, size_t bytes) override {
    return device_.Clear(stream, memory, bytes);
  }
  absl::Status Pack(StreamId stream, absl::Span<const Piece> pieces, float scale, BucketType type,
                    std::byte* bucket) override {
    return device_.Pack(stream, pieces, scale, type, bucket);
  }
  absl::Status Unpack(StreamId stream, absl::Span<const Piece> pieces, BucketType type,
                      const std::byte* bucket) override {
    return device_.Unpack(stream, pieces, type, bucket);
  }
  absl::Status Unscale(StreamId stream, float* values, uint64_t count, float factor,
                       uint32_t* bad) override {
    return device_.Unscale(stream, values, count, factor, bad);
  }
  absl::Status CopyNonzero(StreamId stream, float* host, const float* device, uint64_t count,
                           uint8_t* nonzero) override {
    return device_.CopyNonzero(stream, host, device, count, nonzero);
  }
  absl::StatusOr<std::unique_ptr<DeviceEvent>> MakeEvent() override { return device_.MakeEvent(); }
  absl::Status Record(DeviceEvent& event, StreamId stream) override {
    return device_.Record(event, stream);
  }
  absl::Status Wait(StreamId stream, const DeviceEvent& event) override {
    return device_.Wait(stream, event);
  }
  absl::Status Await(const DeviceEvent& event, absl::Time deadline) override {
    return device_.Await(event, deadline);
  }
  absl::StatusOr<bool> HasPassed(const DeviceEvent& event) override {
    return device_.HasPassed(event);
  }
  absl::StatusOr<std::unique_ptr<DeviceEvent>> MakeTimedEvent() override {
    return device_.MakeTimedEvent();
  }
  absl::StatusOr<absl::Duration> Between(const DeviceEvent& begin,
                                         const DeviceEvent& end) override {
    return device_.Between(begin, end);
  }
  absl::StatusOr<std::unique_ptr<DeviceGraph>> MakeGraph() override { return device_.MakeGraph(); }
  void HostReads(const std::byte* memory, size_t bytes) override {
    device_.HostReads(memory, bytes);
  }
  void HostWrites(const std::byte* memory, size_t bytes) override {
    device_.HostWrites(memory, bytes);
  }
  void BeginStep() override { device_.BeginStep(); }
  void EndStep() override { device_.EndStep(); }
  uint64_t BeginWork(StreamId stream, absl::string_view what) override {
    return device_.BeginWork(stream, what);
  }
  void EndWork(uint64_t work) override { device_.EndWork(work); }

 private:
  ComputeDevice& device_;
};

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_FORWARDING_DEVICE_H_
