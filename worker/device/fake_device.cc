#include "worker/device/fake_device.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/clock/steady_now.h"
#include "worker/device/kernels_reference.h"

namespace parley {
namespace {

// Then a wait of the host for other devices counts as one that does not end.
constexpr absl::Duration kNobodyListens = absl::Seconds(60);

Range Bytes(const void* begin, size_t bytes) {
  return {static_cast<const std::byte*>(begin), bytes};
}

// Where the pieces lie in a bucket, and their tensors.
std::vector<Range> InBucket(absl::Span<const Piece> pieces, BucketType type,
                            const std::byte* bucket) {
  std::vector<Range> ranges;
  for (const Piece& piece : pieces) {
    const size_t each = BucketElementBytes(type);
    ranges.push_back(Bytes(bucket + piece.offset * each, piece.count * each));
  }
  return ranges;
}

std::vector<Range> InTensors(absl::Span<const Piece> pieces) {
  std::vector<Range> ranges;
  for (const Piece& piece : pieces) {
    ranges.push_back(Bytes(piece.tensor, piece.count * sizeof(float)));
  }
  return ranges;
}

}  // namespace

class FakeDevice::Event final : public DeviceEvent {
 public:
  bool recorded = false;
  StreamId stream = StreamId::kCompute;
  uint64_t until = 0;
  OrderCheck::Clock clock = {};
  // Of a timed one: when it passed, as last recorded. The stream may still have to pass it when the
  // event is gone.
  bool timed = false;
  std::shared_ptr<absl::Time> passed;
};

class FakeDevice::Graph final : public DeviceGraph {
 public:
  explicit Graph(FakeDevice& device) : device_(device) {}
  absl::Status Run(absl::FunctionRef<void()> compute) override {
    if (!device_.options_.records) {
      return absl::UnavailableError(absl::StrCat(device_.name(), " records no graphs"));
    }
    {
      absl::MutexLock lock(&device_.mu_);
      ++device_.graph_runs_;
      device_.recording_ = std::this_thread::get_id();
    }
    absl::Status status;
    try {
      compute();
    } catch (const std::exception& error) {
      status = absl::UnavailableError(error.what());
    }
    absl::MutexLock lock(&device_.mu_);
    device_.recording_ = std::thread::id();
    return status;
  }

 private:
  FakeDevice& device_;
};

FakeDevice::~FakeDevice() {
  absl::MutexLock lock(&mu_);
  for (std::byte* memory : abandoned_) std::free(memory);
}

absl::StatusOr<ComputeDevice::Memory> FakeDevice::memory() {
  absl::MutexLock lock(&mu_);
  return Memory{options_.memory_bytes - used_, options_.memory_bytes};
}

absl::StatusOr<DeviceBuffer> FakeDevice::GiveOut(absl::string_view what, size_t bytes,
                                                 bool pinned) {
  constexpr size_t kAlignment = 256;
  absl::MutexLock lock(&mu_);
  if (bytes > options_.memory_bytes - used_) {
    return OutOfMemory(name_, what, bytes,
                       Memory{options_.memory_bytes - used_, options_.memory_bytes});
  }
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  auto* const data =
      static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded == 0 ? kAlignment : rounded));
  used_ += bytes;
  ++allocations_;
  order_.Add({data, bytes}, std::string(what), pinned);
  return DeviceBuffer(data, bytes, [this, bytes](std::byte* freed) {
    absl::MutexLock freeing(&mu_);
    order_.Remove(freed);
    used_ -= bytes;
    // Work that was not awaited may still use it.
    bool idle = true;
    for (size_t i = 0; i < kStreamCount; ++i) {
      idle = DoUntil(static_cast<StreamId>(i), streams_[i].given) == Come::kThere && idle;
    }
    if (idle) {
      std::free(freed);
    } else {
      abandoned_.push_back(freed);
    }
  });
}

absl::StatusOr<DeviceBuffer> FakeDevice::Allocate(absl::string_view what, size_t bytes) {
  return GiveOut(what, bytes, false);
}

absl::StatusOr<DeviceBuffer> FakeDevice::AllocatePinned(absl::string_view what, size_t bytes) {
  return GiveOut(what, bytes, true);
}

absl::StatusOr<ComputeDevice::Shared> FakeDevice::AllocateShared(absl::string_view what,
                                                                 size_t bytes) {
  const int file = memfd_create("parley-fake-device", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    return absl::InternalError(absl::StrCat(name_, ": memory for others: ", std::strerror(errno)));
  }
  auto mapped = Map(what, file, bytes, PROT_READ | PROT_WRITE);
  if (!mapped.ok()) return mapped.status();
  return Shared{*std::move(mapped), absl::StrCat(getpid(), " ", file, " ", bytes)};
}

absl::StatusOr<DeviceBuffer> FakeDevice::OpenShared(absl::string_view handle) {
  const std::vector<std::string> words = absl::StrSplit(handle, ' ');
  size_t bytes = 0;
  if (!options_.reaches_others || words.size() != 3 || !absl::SimpleAtoi(words[2], &bytes)) {
    return absl::UnavailableError(absl::StrCat(name_, " does not reach other devices' memory"));
  }
  const std::string path = absl::StrCat("/proc/", words[0], "/fd/", words[1]);
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
  return Map("another device's memory", file, bytes, PROT_READ);
}

absl::StatusOr<DeviceBuffer> FakeDevice::Map(absl::string_view what, int file, size_t bytes,
                                             int protection) {
  void* const mapped = ::mmap(nullptr, bytes, protection, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) {
    ::close(file);
    return absl::InternalError(absl::StrCat(name_, ": mapping memory: ", std::strerror(errno)));
  }
  auto* const data = static_cast<std::byte*>(mapped);
  absl::MutexLock lock(&mu_);
  ++allocations_;
  order_.Add({data, bytes}, std::string(what), /*pinned=*/false);
  return DeviceBuffer(data, bytes, [this, bytes, file](std::byte* unmapped) {
    absl::MutexLock unmapping(&mu_);
    for (size_t i = 0; i < kStreamCount; ++i) {
      DoUntil(static_cast<StreamId>(i), streams_[i].given);
    }
    order_.Remove(unmapped);
    ::munmap(unmapped, bytes);
    ::close(file);
  });
}

absl::Status FakeDevice::CopyOnDevice(StreamId stream, std::byte* to, const std::byte* from,
                                      size_t bytes) {
  {
    absl::MutexLock lock(&mu_);
    copied_between_devices_ += bytes;
  }
  return Do(stream, "copying between devices", {Bytes(from, bytes)}, {Bytes(to, bytes)},
            [=] { std::memcpy(to, from, bytes); });
}

absl::StatusOr<DeviceBuffer> FakeDevice::Pin(absl::string_view what,
                                             absl::Span<const std::byte> memory,
                                             bool /*read_only*/) {
  absl::MutexLock lock(&mu_);
  if (pins_.size() >= options_.most_pins) {
    ++refused_pins_;
    return absl::UnavailableError(absl::StrCat(name_, " does not pin ", what));
  }
  // As CUDA: memory is pinned once.
  const auto after = pins_.upper_bound(memory.data() + memory.size() - 1);
  if (after != pins_.begin() && std::prev(after)->second > memory.data()) {
    return absl::UnavailableError(absl::StrCat(name_, ": memory of ", what, " is pinned already"));
  }
  pins_[memory.data()] = memory.data() + memory.size();
  ++pinned_;
  order_.Add({memory.data(), memory.size()}, std::string(what), /*pinned=*/true);
  auto* const begin = const_cast<std::byte*>(memory.data());
  return DeviceBuffer(begin, memory.size(), [this](std::byte* pinned) {
    absl::MutexLock unpinning(&mu_);
    pins_.erase(pinned);
    order_.Remove(pinned);
  });
}

absl::Status FakeDevice::Do(StreamId stream, const std::string& what,
                            const std::vector<Range>& reads, const std::vector<Range>& writes,
                            std::function<void()> run, std::function<bool()> ready) {
  absl::MutexLock lock(&mu_);
  CheckRecording();
  order_.Use(static_cast<size_t>(stream), what, reads, writes);
  Give(stream, {std::move(run), std::move(ready), stream, 0});
  return absl::OkStatus();
}

absl::Status FakeDevice::CopyToHost(StreamId stream, std::byte* host, const std::byte* device,
                                    size_t bytes) {
  {
    absl::MutexLock lock(&mu_);
    copied_to_host_ += bytes;
  }
  return Do(stream, "copying to the host", {Bytes(device, bytes)}, {Bytes(host, bytes)},
            [=] { std::memcpy(host, device, bytes); });
}

absl::Status FakeDevice::CopyToDevice(StreamId stream, std::byte* device, const std::byte* host,
                                      size_t bytes) {
  {
    absl::MutexLock lock(&mu_);
    copied_to_device_ += bytes;
    if (bytes != 0 && !order_.IsPinned({host, bytes})) ++copies_of_unpinned_;
  }
  return Do(stream, "copying to the device", {Bytes(host, bytes)}, {Bytes(device, bytes)},
            [=] { std::memcpy(device, host, bytes); });
}

absl::Status FakeDevice::Clear(StreamId stream, std::byte* memory, size_t bytes) {
  return Do(stream, "clearing", {}, {Bytes(memory, bytes)}, [=] { std::memset(memory, 0, bytes); });
}

absl::Status FakeDevice::Pack(StreamId stream, absl::Span<const Piece> pieces, float scale,
                              BucketType type, std::byte* bucket) {
  std::vector<Piece> kept(pieces.begin(), pieces.end());
  return Do(stream, "packing", InTensors(pieces), InBucket(pieces, type, bucket),
            [=] { PackReference(kept, scale, type, bucket); });
}

absl::Status FakeDevice::Unpack(StreamId stream, absl::Span<const Piece> pieces, BucketType type,
                                const std::byte* bucket) {
  std::vector<Piece> kept(pieces.begin(), pieces.end());
  return Do(stream, "unpacking", InBucket(pieces, type, bucket), InTensors(pieces),
            [=] { UnpackReference(kept, type, bucket); });
}

absl::Status FakeDevice::Unscale(StreamId stream, float* values, uint64_t count, float factor,
                                 uint32_t* bad) {
  return Do(stream, "unscaling", {},
            {Bytes(values, count * sizeof(float)), Bytes(bad, sizeof *bad)},
            [=] { UnscaleReference(values, count, factor, bad); });
}

absl::Status FakeDevice::CopyNonzero(StreamId stream, float* host, const float* device,
                                     uint64_t count, uint8_t* nonzero) {
  if (!options_.writes_to_host) return absl::UnavailableError("it writes to no other memory");
  const uint64_t blocks = (count + kNonzeroBlock - 1) / kNonzeroBlock;
  return Do(stream, "copying what is not zero", {Bytes(device, count * sizeof(float))},
            {Bytes(host, count * sizeof(float)), Bytes(nonzero, blocks)},
            [=] { CopyNonzeroReference(host, device, count, nonzero); });
}

absl::Status FakeDevice::Compute(StreamId stream, const std::string& what,
                                 const std::vector<Range>& reads, const std::vector<Range>& writes,
                                 std::function<void()> run) {
  return Do(stream, what, reads, writes, std::move(run));
}

absl::Status FakeDevice::Join(StreamId stream, const std::string& what,
                              const std::vector<Range>& reads, const std::vector<Range>& writes,
                              std::function<bool()> ready, std::function<void()> run) {
  return Do(stream, what, reads, writes, std::move(run), std::move(ready));
}

absl::StatusOr<std::unique_ptr<DeviceEvent>> FakeDevice::MakeEvent() {
  return std::make_unique<Event>();
}

absl::Status FakeDevice::Record(DeviceEvent& event, StreamId stream) {
  auto& own = static_cast<Event&>(event);
  absl::MutexLock lock(&mu_);
  CheckRecording();
  own.recorded = true;
  own.stream = stream;
  if (own.timed) {
    own.passed = std::make_shared<absl::Time>();
    Give(stream, {[passed = own.passed] { *passed = SteadyNow(); }, nullptr, stream, 0});
  }
  own.until = Of(stream).given;
  own.clock = order_.Record(static_cast<size_t>(stream));
  return absl::OkStatus();
}

absl::Status FakeDevice::Wait(StreamId stream, const DeviceEvent& event) {
  const auto& own = static_cast<const Event&>(event);
  absl::MutexLock lock(&mu_);
  if (!own.recorded) order_.Say("a stream waits for an event that was never recorded");
  order_.Join(static_cast<size_t>(stream), own.clock);
  Give(stream, {nullptr, nullptr, own.stream, own.until});
  return absl::OkStatus();
}

void FakeDevice::Give(StreamId stream, Work work) {
  Stream& to = Of(stream);
  to.work.push_back(std::move(work));
  ++to.given;
  if (!options_.for_tensors_of_the_cpu || stream != StreamId::kCompute) return;
  if (AwaitUntil(stream, to.given, SteadyNow() + kNobodyListens) == Come::kNotReady) {
    order_.Say("the host waits for other devices, of which nobody tells it that they do not come");
  }
}

FakeDevice::Come FakeDevice::DoUntil(StreamId stream, uint64_t until) {
  Stream& of = Of(stream);
  while (of.done < until) {
    if (of.stalled) return Come::kStalled;
    const Work work = of.work.front();
    if (work.ready != nullptr && !work.ready()) return Come::kNotReady;
    if (work.run != nullptr) {
      work.run();
    } else if (const Come other = DoUntil(work.after, work.until); other != Come::kThere) {
      return other;
    }
    of.work.pop_front();
    ++of.done;
  }
  return Come::kThere;
}

FakeDevice::Come FakeDevice::AwaitUntil(StreamId stream, uint64_t until, absl::Time deadline) {
  while (true) {
    const Come come = DoUntil(stream, until);
    if (come != Come::kNotReady || SteadyNow() > deadline) return come;
    mu_.Unlock();
    absl::SleepFor(absl::Microseconds(50));
    mu_.Lock();
  }
}

absl::Status FakeDevice::Await(const DeviceEvent& event, absl::Time deadline) {
  const auto& own = static_cast<const Event&>(event);
  absl::MutexLock lock(&mu_);
  CheckRecording();
  ++awaits_;
  if (broken_) return Broken();
  if (!own.recorded) order_.Say("the host waits for an event that was never recorded");
  const StreamId stream = own.stream;
  const OrderCheck::Clock clock = own.clock;
  if (AwaitUntil(stream, own.until, deadline) != Come::kThere) {
    return absl::DeadlineExceededError(
        absl::StrCat(name_, ": stream [", StreamName(stream), "] has not come so far"));
  }
  order_.Join(OrderCheck::kHost, clock);
  return absl::OkStatus();
}

absl::StatusOr<bool> FakeDevice::HasPassed(const DeviceEvent& event) {
  const auto& own = static_cast<const Event&>(event);
  absl::MutexLock lock(&mu_);
  if (!own.recorded) order_.Say("the host looks at an event that was never recorded");
  if (broken_) return Broken();
  if (DoUntil(own.stream, own.until) != Come::kThere) return false;
  order_.Join(OrderCheck::kHost, own.clock);
  return true;
}

bool FakeDevice::HasCome(const DeviceEvent& event) {
  const auto& own = static_cast<const Event&>(event);
  absl::MutexLock lock(&mu_);
  return DoUntil(own.stream, own.until) == Come::kThere;
}

absl::StatusOr<std::unique_ptr<DeviceEvent>> FakeDevice::MakeTimedEvent() {
  auto event = std::make_unique<Event>();
  event->timed = true;
  absl::MutexLock lock(&mu_);
  ++timed_events_;
  return event;
}

absl::StatusOr<absl::Duration> FakeDevice::Between(const DeviceEvent& begin,
                                                   const DeviceEvent& end) {
  const auto& from = static_cast<const Event&>(begin);
  const auto& to = static_cast<const Event&>(end);
  absl::MutexLock lock(&mu_);
  for (const Event* event : {&from, &to}) {
    if (event->passed == nullptr || Of(event->stream).done < event->until) {
      return absl::InternalError(absl::StrCat(name_, ": this event has not passed, or not timed"));
    }
  }
  return *to.passed - *from.passed;
}

absl::StatusOr<std::unique_ptr<DeviceGraph>> FakeDevice::MakeGraph() {
  return std::make_unique<Graph>(*this);
}

void FakeDevice::CheckRecording() {
  if (recording_ == std::this_thread::get_id()) {
    order_.Say("the device is used while a graph is recorded");
  }
}

void FakeDevice::HostReads(const std::byte* memory, size_t bytes) {
  absl::MutexLock lock(&mu_);
  order_.Use(OrderCheck::kHost, "reading", {{memory, bytes}}, {});
}

void FakeDevice::HostWrites(const std::byte* memory, size_t bytes) {
  absl::MutexLock lock(&mu_);
  order_.Use(OrderCheck::kHost, "writing", {}, {{memory, bytes}});
}

std::vector<std::string> FakeDevice::violations() const {
  absl::MutexLock lock(&mu_);
  return order_.violations();
}

size_t FakeDevice::awaits() const {
  absl::MutexLock lock(&mu_);
  return awaits_;
}

size_t FakeDevice::allocations() const {
  absl::MutexLock lock(&mu_);
  return allocations_;
}

size_t FakeDevice::copied_to_host() const {
  absl::MutexLock lock(&mu_);
  return copied_to_host_;
}

size_t FakeDevice::copied_to_device() const {
  absl::MutexLock lock(&mu_);
  return copied_to_device_;
}

size_t FakeDevice::copied_between_devices() const {
  absl::MutexLock lock(&mu_);
  return copied_between_devices_;
}

size_t FakeDevice::copies_of_unpinned() const {
  absl::MutexLock lock(&mu_);
  return copies_of_unpinned_;
}

size_t FakeDevice::pinned() const {
  absl::MutexLock lock(&mu_);
  return pinned_;
}

size_t FakeDevice::refused_pins() const {
  absl::MutexLock lock(&mu_);
  return refused_pins_;
}

size_t FakeDevice::timed_events() const {
  absl::MutexLock lock(&mu_);
  return timed_events_;
}

size_t FakeDevice::graph_runs() const {
  absl::MutexLock lock(&mu_);
  return graph_runs_;
}

void FakeDevice::Stall(StreamId stream) {
  absl::MutexLock lock(&mu_);
  Of(stream).stalled = true;
}

void FakeDevice::Break() {
  absl::MutexLock lock(&mu_);
  broken_ = true;
}

absl::Status FakeDevice::Broken() const {
  return absl::InternalError(absl::StrCat(name_, ": an illegal memory access was encountered"));
}

void FakeDevice::Resume(StreamId stream) {
  absl::MutexLock lock(&mu_);
  Of(stream).stalled = false;
}

}  // namespace parley
