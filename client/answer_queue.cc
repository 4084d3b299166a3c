#include "client/answer_queue.h"

#include <sched.h>

#include <algorithm>

namespace parley {
namespace {

constexpr absl::Duration kVisit = absl::Microseconds(50);
// What a shard needs for a few MiB. To sleep for that, and be woken, would take a quarter more.
constexpr absl::Duration kLongVisit = absl::Milliseconds(1);

}  // namespace

void AnswerQueue::Post(std::function<void()> answer) {
  absl::MutexLock lock(&mu_);
  if (ended_.ok()) answers_.push_back(std::move(answer));
}

void AnswerQueue::End(absl::Status why) {
  std::deque<std::function<void()>> dropped;  // destroyed after the lock
  absl::MutexLock lock(&mu_);
  if (!ended_.ok()) return;
  ended_ = std::move(why);
  dropped.swap(answers_);
}

void AnswerQueue::Visit(absl::Time deadline) {
  const absl::Duration patience = last_wait_ < kLongVisit ? kLongVisit : kVisit;
  const absl::Time sleep_at = std::min(deadline, runtime_->Now() + patience);
  do {
    {
      absl::MutexLock lock(&mu_);
      if (Ready()) return;
    }
    if (!visitors_->Visit()) (void)::sched_yield();
  } while (runtime_->Now() < sleep_at);
  visitors_->Leave();
}

absl::Status AnswerQueue::RunUntil(const std::function<bool()>& done, absl::Time deadline,
                                   const std::function<void()>& waiting, absl::Duration interval) {
  const absl::Time began = runtime_->Now();
  bool waited = false;
  while (true) {
    std::function<void()> answer;
    {
      absl::MutexLock lock(&mu_);
      if (!ended_.ok()) return ended_;
    }
    if (done()) {
      if (waited) last_wait_ = runtime_->Now() - began;
      return absl::OkStatus();
    }
    waited = true;
    if (visitors_ != nullptr) Visit(deadline);
    {
      absl::MutexLock lock(&mu_);
      const absl::Time now = runtime_->Now();
      if (answers_.empty() && now >= deadline) return absl::DeadlineExceededError("");
      (void)runtime_->Await(mu_, absl::Condition(this, &AnswerQueue::Ready),
                            std::min(deadline, now + interval));
      if (!answers_.empty()) {
        answer = std::move(answers_.front());
        answers_.pop_front();
      }
    }
    if (answer) {
      answer();
    } else {
      waiting();
    }
  }
}

}  // namespace parley
