#include "worker/device/group_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock/await.h"
#include "common/clock/steady_now.h"

namespace parley {
namespace {

constexpr absl::Duration kListen = absl::Milliseconds(10);

}  // namespace

absl::Status GroupStream::Form(Group group) {
  if (absl::Status status = Abort(); !status.ok()) return status;
  group_ = std::move(group);
  thread_ = std::thread([this] { Run(); });
  if (group_.stands) listener_ = std::thread([this] { Listen(); });
  return absl::OkStatus();
}

uint64_t GroupStream::Give(Work work) {
  absl::MutexLock lock(&mu_);
  given_.push_back(std::move(work));
  return ++last_given_;
}

bool GroupStream::IsLaunched(uint64_t number) const {
  absl::MutexLock lock(&mu_);
  return last_launched_ >= number;
}

bool GroupStream::HasEnded(uint64_t number) const {
  absl::MutexLock lock(&mu_);
  return last_ended_ >= number;
}

absl::Status GroupStream::error() const {
  absl::MutexLock lock(&mu_);
  return failed_;
}

bool GroupStream::HasMore() const {
  absl::MutexLock lock(&mu_);
  return !given_.empty();
}

void GroupStream::Listen() {
  while (group_.stands()) {
    absl::MutexLock lock(&mu_);
    if (AwaitFor(mu_, absl::Condition(&is_left_), kListen)) return;
  }
  std::shared_ptr<DeviceGroup> among;
  {
    absl::MutexLock lock(&mu_);
    among = among_;
  }
  // Where it has not been found yet whoever finds it asks, too.
  if (among != nullptr) among->Abort();
}

void GroupStream::Run() {
  const auto cancelled = [this] { return stopping_.load() || (group_.stands && !group_.stands()); };
  auto joined = group_.join(cancelled);
  if (!joined.ok()) {
    Fail(joined.status());
    return;
  }
  const std::shared_ptr<DeviceGroup> among = *std::move(joined);
  {
    absl::MutexLock lock(&mu_);
    among_ = among;
  }
  // Abort may have come before there was anything to abort.
  if (cancelled()) among->Abort();
  if (absl::Status status = Serve(*among); !status.ok()) Fail(status);
  absl::MutexLock lock(&mu_);
  among_.reset();
}

absl::Status GroupStream::Serve(DeviceGroup& group) {
  while (!stopping_) {
    Work work;
    {
      absl::MutexLock lock(&mu_);
      const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
        return stopping_ || !given_.empty() || !launched_.empty();
      };
      mu_.Await(absl::Condition(&has_work));
      if (stopping_) break;
      if (!given_.empty()) {
        work = std::move(given_.front());
        given_.pop_front();
      }
    }
    if (work.launch == nullptr) {
      if (absl::Status status = AwaitOldest(group); !status.ok()) return status;
      continue;
    }
    if (absl::Status status = work.launch(group); !status.ok()) return status;
    {
      absl::MutexLock lock(&mu_);
      launched_.push_back(std::move(work));
      ++last_launched_;
    }
    group_.wake();
  }
  return absl::OkStatus();
}

absl::Status GroupStream::AwaitOldest(DeviceGroup& group) {
  const DeviceEvent* end = nullptr;
  {
    absl::MutexLock lock(&mu_);
    end = launched_.front().end;
  }
  bool ended = false;
  absl::Status status = group.Await(
      [&]() -> absl::StatusOr<bool> {
        const auto passed = device_.HasPassed(*end);
        if (!passed.ok()) return passed.status();
        ended = *passed;
        return ended || HasMore();
      },
      SteadyNow() + group_.patience);
  if (!status.ok() || !ended) return status;
  Work work;
  {
    absl::MutexLock lock(&mu_);
    work = std::move(launched_.front());
    launched_.pop_front();
    ++last_ended_;
  }
  if (work.ended != nullptr) work.ended();
  group_.wake();
  return absl::OkStatus();
}

void GroupStream::Fail(const absl::Status& why) {
  {
    absl::MutexLock lock(&mu_);
    failed_.Update(why);
  }
  group_.wake();
}

absl::Status GroupStream::Abort() {
  if (!thread_.joinable()) return absl::OkStatus();
  std::shared_ptr<DeviceGroup> among;
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    is_left_ = true;
    among = among_;
  }
  if (among != nullptr) among->Abort();
  thread_.join();
  if (listener_.joinable()) listener_.join();
  among.reset();
  stopping_ = false;
  {
    absl::MutexLock lock(&mu_);
    given_.clear();
    launched_.clear();
    is_left_ = false;
    last_given_ = last_launched_ = last_ended_ = 0;
    failed_ = absl::OkStatus();
  }
  // What streams were given may still use the memory of works: it is used again when they are done.
  const absl::Time deadline = SteadyNow() + device_patience_;
  for (const StreamId stream :
       {StreamId::kCommunication, StreamId::kToHost, StreamId::kToDevice, StreamId::kCompute}) {
    const auto event = device_.MakeEvent();
    absl::Status status = event.status();
    if (status.ok()) status = device_.Record(**event, stream);
    if (status.ok()) status = device_.Await(**event, deadline);
    if (absl::IsDeadlineExceeded(status)) {
      return absl::InternalError(absl::StrCat(device_.name(), " has not come to an end within ",
                                              absl::FormatDuration(device_patience_),
                                              " of leaving its node group: ", status.message()));
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace parley
