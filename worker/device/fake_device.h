#ifndef PARLEY_WORKER_DEVICE_FAKE_DEVICE_H_
#define PARLEY_WORKER_DEVICE_FAKE_DEVICE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "worker/device/device.h"
#include "worker/device/order_check.h"

namespace parley {

// A device in plain memory, for tests of what drives one. It does each stream's work as late as it
// may (when an event that comes after it is awaited), so that who forgets to wait sees stale
// values; and whatever the values are, OrderCheck says which two uses of the same memory nothing
// has put in an order. All threads of the host count as one. Thread-safe.
class FakeDevice : public ComputeDevice {
 public:
  struct Options {
    int index = 0;
    size_t memory_bytes = 1 << 30;
    // LibTorch's tensors on the CPU count as the device's, and what LibTorch does with them as work
    // of the compute stream. So that stream does at once what it is given, and who gives it
    // something waits where the stream is told to: for other devices, too, as in a synchronisation
    // of LibTorch's own. And memory that the device has not given out is nobody's concern.
    bool for_tensors_of_the_cpu = false;
    size_t most_pins = SIZE_MAX;  // of memory of others, at a time
    bool records = true;          // graphs
    bool reaches_others = true;   // memory of other devices
    bool writes_to_host = true;   // by itself, CopyNonzero
  };
  FakeDevice() : FakeDevice(Options()) {}
  explicit FakeDevice(const Options& options) : options_(options) {
    if (options.for_tensors_of_the_cpu) order_.IgnoreOtherMemory();
  }
  ~FakeDevice() override;

  const std::string& name() const override { return name_; }
  std::string torch_device() const override { return "cpu"; }
  absl::StatusOr<Memory> memory() override;
  absl::StatusOr<DeviceBuffer> Allocate(absl::string_view what, size_t bytes) override;
  // In memory that other processes' fake devices can map, for as long as this process has it.
  absl::StatusOr<Shared> AllocateShared(absl::string_view what, size_t bytes) override;
  absl::StatusOr<DeviceBuffer> OpenShared(absl::string_view handle) override;
  absl::Status CopyOnDevice(StreamId stream, std::byte* to, const std::byte* from,
                            size_t bytes) override;
  absl::StatusOr<DeviceBuffer> AllocatePinned(absl::string_view what, size_t bytes) override;
  absl::StatusOr<DeviceBuffer> Pin(absl::string_view what, absl::Span<const std::byte> memory,
                                   bool read_only) override;
  absl::Status CopyToHost(StreamId stream, std::byte* host, const std::byte* device,
                          size_t bytes) override;
  absl::Status CopyToDevice(StreamId stream, std::byte* device, const std::byte* host,
                            size_t bytes) override;
  absl::Status Clear(StreamId stream, std::byte* memory, size_t bytes) override;
  absl::Status Pack(StreamId stream, absl::Span<const Piece> pieces, float scale, BucketType type,
                    std::byte* bucket) override;
  absl::Status Unpack(StreamId stream, absl::Span<const Piece> pieces, BucketType type,
                      const std::byte* bucket) override;
  absl::Status Unscale(StreamId stream, float* values, uint64_t count, float factor,
                       uint32_t* bad) override;
  absl::Status CopyNonzero(StreamId stream, float* host, const float* device, uint64_t count,
                           uint8_t* nonzero) override;
  absl::StatusOr<std::unique_ptr<DeviceEvent>> MakeEvent() override;
  absl::Status Record(DeviceEvent& event, StreamId stream) override;
  absl::Status Wait(StreamId stream, const DeviceEvent& event) override;
  absl::Status Await(const DeviceEvent& event, absl::Time deadline) override;
  absl::StatusOr<bool> HasPassed(const DeviceEvent& event) override;
  absl::StatusOr<std::unique_ptr<DeviceEvent>> MakeTimedEvent() override;
  absl::StatusOr<absl::Duration> Between(const DeviceEvent& begin, const DeviceEvent& end) override;
  // Calls what is to be recorded each time: it cannot say again what LibTorch has done on the CPU.
  absl::StatusOr<std::unique_ptr<DeviceGraph>> MakeGraph() override;
  void HostReads(const std::byte* memory, size_t bytes) override;
  void HostWrites(const std::byte* memory, size_t bytes) override;

  // A kernel of the test's own: what forward and backward do.
  absl::Status Compute(StreamId stream, const std::string& what, const std::vector<Range>& reads,
                       const std::vector<Range>& writes, std::function<void()> run);

  // One that works with other devices: it runs when ready() says so, and until then its stream does
  // nothing, as on a GPU whose peers have not come. ready() does not use this device; any thread.
  absl::Status Join(StreamId stream, const std::string& what, const std::vector<Range>& reads,
                    const std::vector<Range>& writes, std::function<bool()> ready,
                    std::function<void()> run);

  // As HasPassed, for such other devices: nothing that the host does is behind it.
  bool HasCome(const DeviceEvent& event);

  // What nothing has put in an order, and other misuse; one line each.
  std::vector<std::string> violations() const;
  // How often the host has waited, and memory was allocated.
  size_t awaits() const;
  size_t allocations() const;
  // How often memory was pinned where it is.
  size_t pinned() const;
  size_t refused_pins() const;
  // Copies to the device from memory that is not: the host waits for those.
  size_t copies_of_unpinned() const;
  // Bytes of all copies to the host, and to the device, that were asked for.
  size_t copied_to_host() const;
  size_t copied_to_device() const;
  // And of those to it from other devices.
  size_t copied_between_devices() const;
  // How many timed events were made, and how often a graph was run.
  size_t timed_events() const;
  size_t graph_runs() const;
  // From now on the stream does nothing any more: awaits end with DeadlineExceeded, at once. Until
  // Resume.
  void Stall(StreamId stream);
  void Resume(StreamId stream);
  // From now on the host's looks at events end with an Internal error, as after a fault.
  void Break();

 private:
  class Event;
  class Graph;
  struct Work {
    std::function<void()> run;            // empty: it only waits
    std::function<bool()> ready;          // empty: it is
    StreamId after = StreamId::kCompute;  // the stream it waits for,
    uint64_t until = 0;                   // until so much of its work is done
  };
  struct Stream {
    std::deque<Work> work;  // not done
    uint64_t given = 0;
    uint64_t done = 0;
    bool stalled = false;
  };

  absl::Status Broken() const;
  // This thread must not use the device while it records a graph.
  void CheckRecording() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<DeviceBuffer> Map(absl::string_view what, int file, size_t bytes, int protection);
  absl::StatusOr<DeviceBuffer> GiveOut(absl::string_view what, size_t bytes, bool pinned);
  absl::Status Do(StreamId stream, const std::string& what, const std::vector<Range>& reads,
                  const std::vector<Range>& writes, std::function<void()> run,
                  std::function<bool()> ready = nullptr);
  // Does the stream's work up to there, unless a stall or other devices are in the way.
  enum class Come { kThere, kStalled, kNotReady };
  Come DoUntil(StreamId stream, uint64_t until) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The same, and waits for other devices; lets go of the lock meanwhile.
  Come AwaitUntil(StreamId stream, uint64_t until, absl::Time deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Give(StreamId stream, Work work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Stream& Of(StreamId stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return streams_[static_cast<size_t>(stream)];
  }

  const Options options_;
  const std::string name_ = "fake:" + std::to_string(options_.index);
  mutable absl::Mutex mu_;
  std::array<Stream, kStreamCount> streams_ ABSL_GUARDED_BY(mu_);
  OrderCheck order_ ABSL_GUARDED_BY(mu_);
  size_t used_ ABSL_GUARDED_BY(mu_) = 0;
  // Was freed while a stalled stream had still to use it.
  std::vector<std::byte*> abandoned_ ABSL_GUARDED_BY(mu_);
  size_t awaits_ ABSL_GUARDED_BY(mu_) = 0;
  size_t allocations_ ABSL_GUARDED_BY(mu_) = 0;
  size_t pinned_ ABSL_GUARDED_BY(mu_) = 0;
  size_t refused_pins_ ABSL_GUARDED_BY(mu_) = 0;
  size_t copies_of_unpinned_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<const std::byte*, const std::byte*> pins_ ABSL_GUARDED_BY(mu_);  // begin, end
  size_t copied_to_host_ ABSL_GUARDED_BY(mu_) = 0;
  size_t copied_to_device_ ABSL_GUARDED_BY(mu_) = 0;
  size_t copied_between_devices_ ABSL_GUARDED_BY(mu_) = 0;
  size_t timed_events_ ABSL_GUARDED_BY(mu_) = 0;
  bool broken_ ABSL_GUARDED_BY(mu_) = false;
  size_t graph_runs_ ABSL_GUARDED_BY(mu_) = 0;
  std::thread::id recording_ ABSL_GUARDED_BY(mu_);  // who records a graph; none: nobody
};

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_FAKE_DEVICE_H_
