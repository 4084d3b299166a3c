#include "worker/device/timed_device.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"

namespace parley {
namespace {

// A stream without work passes an event at once. One that has some is not waited for.
constexpr absl::Duration kPatience = absl::Milliseconds(20);

}  // namespace

TimedDevice::TimedDevice(ComputeDevice& device, Options options)
    : device_(device), options_(std::move(options)), to_next_(options_.every - 1) {}

std::unique_ptr<DeviceEvent> TimedDevice::RecordNow(StreamId stream) {
  std::unique_ptr<DeviceEvent> event;
  if (spare_.empty()) {
    auto made = device_.MakeTimedEvent();
    if (!made.ok()) return nullptr;
    event = *std::move(made);
  } else {
    event = std::move(spare_.back());
    spare_.pop_back();
  }
  if (!device_.Record(*event, stream).ok()) return nullptr;
  return event;
}

bool TimedDevice::SetBase() {
  // Gradients have left when a step begins, so this stream has nothing to do.
  base_ = RecordNow(StreamId::kToHost);
  if (base_ == nullptr) return false;
  const absl::Time give_up = absl::Now() + kPatience;
  while (true) {
    const auto passed = device_.HasPassed(*base_);
    base_time_ = absl::Now();
    if (!passed.ok() || (!*passed && base_time_ > give_up)) return false;
    if (*passed) return true;
  }
}

void TimedDevice::BeginStep() {
  std::vector<Work> ended;
  {
    absl::MutexLock lock(&mu_);
    looking_ = false;
    ended = TakeEnded();
    const bool is_due = to_next_ == 0;
    if (!is_due) --to_next_;
    // Not while an earlier one has not ended.
    if (is_due && given_.empty()) {
      looking_ = SetBase();
      to_next_ = options_.every - 1;
    }
  }
  if (!ended.empty()) options_.on_step(ended);
}

void TimedDevice::Flush() {
  std::vector<Work> ended;
  {
    absl::MutexLock lock(&mu_);
    looking_ = false;
    ended = TakeEnded();
  }
  if (!ended.empty()) options_.on_step(ended);
}

uint64_t TimedDevice::BeginWork(StreamId stream, absl::string_view what) {
  absl::MutexLock lock(&mu_);
  if (!looking_) return 0;
  std::unique_ptr<DeviceEvent> begin = RecordNow(stream);
  if (begin == nullptr) {
    Forget();
    return 0;
  }
  given_.push_back({stream, std::string(what), std::move(begin), nullptr});
  return first_ + given_.size() - 1;
}

void TimedDevice::EndWork(uint64_t work) {
  absl::MutexLock lock(&mu_);
  if (work < first_) return;
  Given& given = given_[work - first_];
  given.end = RecordNow(given.stream);
  if (given.end == nullptr) Forget();
}

void TimedDevice::Forget() {
  looking_ = false;
  first_ += given_.size();
  given_.clear();
}

std::vector<TimedDevice::Work> TimedDevice::TakeEnded() {
  std::vector<Work> works;
  for (const Given& given : given_) {
    if (given.end == nullptr) return {};
    const auto passed = device_.HasPassed(*given.end);
    if (passed.ok() && !*passed) return {};
    const auto begin = passed.ok() ? device_.Between(*base_, *given.begin) : passed.status();
    const auto end = begin.ok() ? device_.Between(*base_, *given.end) : begin.status();
    if (!end.ok()) {
      Forget();
      return {};
    }
    works.push_back({given.stream, given.what, base_time_ + *begin, base_time_ + *end});
  }
  for (Given& given : given_) {
    spare_.push_back(std::move(given.begin));
    spare_.push_back(std::move(given.end));
  }
  Forget();
  return works;
}

std::array<absl::Duration, kStreamCount> BusyTimes(absl::Span<const TimedDevice::Work> works) {
  std::array<absl::Duration, kStreamCount> busy;
  for (size_t stream = 0; stream < kStreamCount; ++stream) {
    std::vector<std::pair<absl::Time, absl::Time>> times;
    for (const TimedDevice::Work& work : works) {
      if (static_cast<size_t>(work.stream) == stream) times.emplace_back(work.begin, work.end);
    }
    std::sort(times.begin(), times.end());
    absl::Time until = absl::InfinitePast();
    for (const auto& [begin, end] : times) {
      busy[stream] += std::max(absl::ZeroDuration(), end - std::max(begin, until));
      until = std::max(until, end);
    }
  }
  return busy;
}

}  // namespace parley
