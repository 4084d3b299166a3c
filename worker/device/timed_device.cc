#include "worker/device/timed_device.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "common/clock/steady_now.h"

namespace parley {
namespace {

// A stream without work passes an event at once. One that has some is not waited for.
constexpr absl::Duration kPatience = absl::Milliseconds(20);
constexpr absl::Duration kBreak = absl::Microseconds(10);

// The host's look at an event is as exact as this, or the next event is looked at; so many of them.
constexpr absl::Duration kExact = absl::Microseconds(50);
constexpr int kLooks = 4;

// Steps that may wait to be told: a device that is so far behind is not to be asked for more.
constexpr size_t kMostSteps = 8;

}  // namespace

TimedDevice::TimedDevice(ComputeDevice& device, Options options)
    : ForwardingDevice(device), options_(std::move(options)), to_next_(options_.every - 1) {}

std::unique_ptr<DeviceEvent> TimedDevice::RecordNow(StreamId stream) {
  std::unique_ptr<DeviceEvent> event;
  if (spare_.empty()) {
    auto made = MakeTimedEvent();
    if (made.ok()) event = *std::move(made);
  } else {
    event = std::move(spare_.back());
    spare_.pop_back();
  }
  if (event != nullptr && Record(*event, stream).ok()) return event;
  Forget();
  return nullptr;
}

void TimedDevice::Look() {
  Step step;
  // Gradients have left when a step begins, so this stream has nothing to do.
  constexpr StreamId kIdle = StreamId::kToHost;
  const absl::Time give_up = SteadyNow() + kPatience;
  for (int look = 0; look < kLooks; ++look) {
    {
      absl::MutexLock lock(&mu_);
      if (step.base != nullptr) spare_.push_back(std::move(step.base));
      step.base = RecordNow(kIdle);
    }
    if (step.base == nullptr) return;
    absl::Time before = SteadyNow();
    while (true) {
      const auto passed = HasPassed(*step.base);
      step.base_time = SteadyNow();
      if (!passed.ok() || (!*passed && step.base_time > give_up)) return;
      if (*passed) break;
      absl::SleepFor(kBreak);
      before = SteadyNow();
    }
    if (step.base_time - before <= kExact) break;
  }
  absl::MutexLock lock(&mu_);
  step.first = next_;
  steps_.push_back(std::move(step));
  looking_ = true;
}

void TimedDevice::BeginStep() {
  EndStep();
  TellOfEnded();
  if (to_next_-- > 0) return;
  to_next_ = options_.every - 1;
  {
    absl::MutexLock lock(&mu_);
    if (steps_.size() == kMostSteps) return;
  }
  Look();
}

void TimedDevice::EndStep() {
  absl::MutexLock lock(&mu_);
  looking_ = false;
}

void TimedDevice::Flush() {
  EndStep();
  TellOfEnded();
}

void TimedDevice::TellOfEnded() {
  while (true) {
    std::vector<Work> ended;
    {
      absl::MutexLock lock(&mu_);
      while (!steps_.empty() && steps_.front().given.empty()) {
        spare_.push_back(std::move(steps_.front().base));
        steps_.pop_front();
      }
      ended = TakeEnded();
    }
    if (ended.empty()) return;
    options_.on_step(ended);
  }
}

uint64_t TimedDevice::BeginWork(StreamId stream, absl::string_view what) {
  absl::MutexLock lock(&mu_);
  if (!looking_) return 0;
  std::unique_ptr<DeviceEvent> begin = RecordNow(stream);
  if (begin == nullptr) return 0;
  steps_.back().given.push_back({stream, std::string(what), std::move(begin), nullptr});
  return next_++;
}

void TimedDevice::EndWork(uint64_t work) {
  absl::MutexLock lock(&mu_);
  for (Step& step : steps_) {
    if (work < step.first || work - step.first >= step.given.size()) continue;
    Given& given = step.given[work - step.first];
    const StreamId stream = given.stream;
    std::unique_ptr<DeviceEvent> end = RecordNow(stream);
    if (end != nullptr) given.end = std::move(end);
    return;
  }
}

void TimedDevice::Forget() {
  looking_ = false;
  steps_.clear();
}

std::vector<TimedDevice::Work> TimedDevice::TakeEnded() {
  std::vector<Work> works;
  if (steps_.empty()) return works;
  Step& step = steps_.front();
  for (const Given& given : step.given) {
    if (given.end == nullptr) return {};
    const auto passed = HasPassed(*given.end);
    if (passed.ok() && !*passed) return {};
    const auto begin = passed.ok() ? Between(*step.base, *given.begin) : passed.status();
    const auto end = begin.ok() ? Between(*step.base, *given.end) : begin.status();
    if (!end.ok()) {
      Forget();
      return {};
    }
    works.push_back({given.stream, given.what, step.base_time + *begin, step.base_time + *end});
  }
  for (Given& given : step.given) {
    spare_.push_back(std::move(given.begin));
    spare_.push_back(std::move(given.end));
  }
  spare_.push_back(std::move(step.base));
  steps_.pop_front();
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
