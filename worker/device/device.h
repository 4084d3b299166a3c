#ifndef PARLEY_WORKER_DEVICE_DEVICE_H_
#define PARLEY_WORKER_DEVICE_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker/device/device_buffer.h"
#include "worker/device/kernels.h"

namespace parley {

// Work on one stream is done in the order in which it was given; work on different streams only
// events order.
enum class StreamId : uint8_t {
  kCompute,        // forward and backward, and the kernels that touch their tensors
  kToHost,         // copies of gradients
  kToDevice,       // copies of parameters
  kCommunication,  // among the devices of a node
};
inline constexpr size_t kStreamCount = 4;
absl::string_view StreamName(StreamId stream);

// A place in the work of a stream; made by a device and used with that one.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
};

// Work of a thread that was recorded once, to be given to the compute stream again and again in one
// call. It goes before its device.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // Has the compute stream do what `compute` gives it. The first time it calls `compute`, records
  // what this thread and those of backward give the compute stream in it, and then has that done;
  // from then on it only does the same again, with the same memory. `compute` must neither wait for
  // the device nor use a ComputeDevice. Unavailable where something in it cannot be recorded:
  // nothing was done then, and it is not to be called again. Others as ComputeDevice.
  virtual absl::Status Run(absl::FunctionRef<void()> compute) = 0;
};

// A GPU as the worker's own code sees it: memory, four streams and events; no CUDA, no LibTorch.
// The CUDA implementation lies in the plugin (worker/cuda), FakeDevice checks the order of what its
// callers do. All but Await only give work to a stream and return. There is no wait for the
// whole device: a step must not need one. Thread-safe, but an event is one thread's at a time.
//
// Errors, alike for all methods: ResourceExhausted where there is no memory, DeadlineExceeded where
// a wait was too long, else Internal with what the device said. After an Internal one the device is
// not to be used any more.
class ComputeDevice {
 public:
  virtual ~ComputeDevice() = default;

  // "cuda:0 (NVIDIA H100)", for messages.
  virtual const std::string& name() const = 0;
  // What LibTorch calls it, whose tensors lie in its memory: "cuda:0".
  virtual std::string torch_device() const = 0;

  struct Memory {
    size_t free = 0;
    size_t total = 0;
  };
  virtual absl::StatusOr<Memory> memory() = 0;

  // The device's memory, 256-byte aligned. ResourceExhausted names `what`, the bytes and the
  // device.
  virtual absl::StatusOr<DeviceBuffer> Allocate(absl::string_view what, size_t bytes) = 0;
  // Memory of the device that other processes of this machine can read, and what they find it by.
  // The device may keep it until the process ends, since they may.
  struct Shared {
    DeviceBuffer memory;
    std::string handle;
  };
  virtual absl::StatusOr<Shared> AllocateShared(absl::string_view what, size_t bytes) = 0;
  // Memory that another process's device has so, to be copied from for as long as that keeps it; it
  // may be another device. Unavailable where this one cannot reach it.
  virtual absl::StatusOr<DeviceBuffer> OpenShared(absl::string_view handle) = 0;
  // The host's memory, pinned, which the device copies from and to while the host goes on.
  virtual absl::StatusOr<DeviceBuffer> AllocatePinned(absl::string_view what, size_t bytes) = 0;
  // Makes memory that the host has already such memory, until what is returned goes; it owns no
  // more than that. What is mapped there must stay the same meanwhile: the device goes on with the
  // pages that were there now. read_only: nobody here may write there, the device neither.
  // Unavailable where the system does not let it.
  virtual absl::StatusOr<DeviceBuffer> Pin(absl::string_view what,
                                           absl::Span<const std::byte> memory, bool read_only) = 0;

  // `host` is pinned memory, and must stay as it is until the copy is done.
  virtual absl::Status CopyToHost(StreamId stream, std::byte* host, const std::byte* device,
                                  size_t bytes) = 0;
  virtual absl::Status CopyToDevice(StreamId stream, std::byte* device, const std::byte* host,
                                    size_t bytes) = 0;

  // A copy of each, of which none is empty and none touches another's place; in any order. Faster
  // than one by one.
  struct HostPart {
    std::byte* device = nullptr;
    absl::Span<const std::byte> host;  // pinned
  };
  virtual absl::Status CopyPartsToDevice(StreamId stream, absl::Span<const HostPart> parts);

  // From memory of this device, or of OpenShared, to this one's.
  virtual absl::Status CopyOnDevice(StreamId stream, std::byte* to, const std::byte* from,
                                    size_t bytes) = 0;

  // Bytes of the device become 0.
  virtual absl::Status Clear(StreamId stream, std::byte* memory, size_t bytes) = 0;
  // bucket[offset + i] = tensor[i] * scale, rounded to the nearest where it is bfloat16. With scale
  // 1 as float32 bit by bit, and so are words of other types.
  virtual absl::Status Pack(StreamId stream, absl::Span<const Piece> pieces, float scale,
                            BucketType type, std::byte* bucket) = 0;
  // tensor[i] = bucket[offset + i].
  virtual absl::Status Unpack(StreamId stream, absl::Span<const Piece> pieces, BucketType type,
                              const std::byte* bucket) = 0;
  // values[i] *= factor; *bad is made 1 where one of them was an infinity or a NaN before, and else
  // left as it is. All are of the device.
  virtual absl::Status Unscale(StreamId stream, float* values, uint64_t count, float factor,
                               uint32_t* bad) = 0;

  // Brings a tensor of which most is zeros to pinned memory, in blocks of kNonzeroBlock values (the
  // last one may have fewer): those that hold anything but +0, and those whose byte in `nonzero`
  // says that the host's memory may hold something there. Then the bytes, which are pinned too and
  // one for each block, say of the tensor whether there is anything, and the host's memory is the
  // whole tensor. Unavailable where the device cannot write to the host's memory by itself.
  virtual absl::Status CopyNonzero(StreamId stream, float* host, const float* device,
                                   uint64_t count, uint8_t* nonzero) = 0;

  virtual absl::StatusOr<std::unique_ptr<DeviceEvent>> MakeEvent() = 0;
  // The event is from now on where the stream's work ends now.
  virtual absl::Status Record(DeviceEvent& event, StreamId stream) = 0;
  // What the stream is given from now on begins when the event, as last recorded, has passed.
  virtual absl::Status Wait(StreamId stream, const DeviceEvent& event) = 0;
  // The host waits for the event, as last recorded.
  virtual absl::Status Await(const DeviceEvent& event, absl::Time deadline) = 0;
  // Whether it has passed, as last recorded; then the host may read what was written before it.
  virtual absl::StatusOr<bool> HasPassed(const DeviceEvent& event) = 0;

  // An event that knows when it has passed; it costs the device a little more.
  virtual absl::StatusOr<std::unique_ptr<DeviceEvent>> MakeTimedEvent() = 0;
  // From the passing of one to the other's, as last recorded: timed events, which have passed.
  virtual absl::StatusOr<absl::Duration> Between(const DeviceEvent& begin,
                                                 const DeviceEvent& end) = 0;

  virtual absl::StatusOr<std::unique_ptr<DeviceGraph>> MakeGraph() = 0;

  // The host reads or writes pinned memory now: for a device that checks the order.
  virtual void HostReads(const std::byte* /*memory*/, size_t /*bytes*/) {}
  virtual void HostWrites(const std::byte* /*memory*/, size_t /*bytes*/) {}

  // For a device that keeps time (TimedDevice). A step begins, and ends: what the device is given
  // between two steps belongs to none. What the stream is given from BeginWork to EndWork is one
  // work of this name, which may lie within another one; BeginWork returns what EndWork is to be
  // called with.
  virtual void BeginStep() {}
  virtual void EndStep() {}
  virtual uint64_t BeginWork(StreamId /*stream*/, absl::string_view /*what*/) { return 0; }
  virtual void EndWork(uint64_t /*work*/) {}
};

// What the stream is given in its own life is one work. device: null where there is none.
class StreamWork {
 public:
  StreamWork(ComputeDevice* device, StreamId stream, absl::string_view what)
      : device_(device), work_(device == nullptr ? 0 : device->BeginWork(stream, what)) {}
  ~StreamWork() {
    if (device_ != nullptr) device_->EndWork(work_);
  }
  StreamWork(const StreamWork&) = delete;
  StreamWork& operator=(const StreamWork&) = delete;

 private:
  ComputeDevice* const device_;
  const uint64_t work_;
};

// What Allocate and AllocatePinned say where there is no room.
absl::Status OutOfMemory(const std::string& device, absl::string_view what, size_t bytes,
                         ComputeDevice::Memory memory);

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_DEVICE_H_
