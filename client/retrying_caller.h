#ifndef PARLEY_CLIENT_RETRYING_CALLER_H_
#define PARLEY_CLIENT_RETRYING_CALLER_H_

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "client/retry.h"
#include "client/timers.h"
#include "common/replies.h"
#include "common/seed.h"

namespace parley {

struct RetryOptions {
  std::string what;     // "push to shard 1 at HOST:PORT", for the error at the deadline
  absl::Time deadline;  // the caller's; never infinite
  // Asked at the deadline, if there is one: whether the call has as much time again, since somebody
  // else puts an end to it. Any thread.
  std::function<bool()> go_on;
  absl::Duration attempt_timeout;  // of one attempt
  absl::Duration refresh_timeout;  // how long FailedPrecondition is tried again
  BackoffPolicy backoff;
};

// Repeats calls by their status codes until they succeed, must not be repeated, or their time is
// over. No thread waits: attempts are asynchronous and waits are timers. Thread-safe. Calls that
// have not ended when `timers` stops never end: whoever waits for them must have gone.
class RetryingCaller {
 public:
  // Open calls keep the timers, since an answer can come after all else has gone.
  RetryingCaller(std::shared_ptr<Timers> timers, uint64_t seed)
      : timers_(std::move(timers)), seed_(seed) {}
  // Where the caller's owner sees to it that the timers outlive all open calls.
  RetryingCaller(Timers* timers, uint64_t seed)
      : RetryingCaller(std::shared_ptr<Timers>(timers, [](Timers*) {}), seed) {}

  // attempt(deadline, done) makes one attempt; it runs on the calling thread first, later on the
  // timers' thread, never twice at the same time, and should build its header anew. done: the
  // reply; the status of the last attempt where it must not be repeated; DeadlineExceeded with
  // `what`, how long it was tried and the last error. It runs on the thread of the last attempt's
  // answer, or the timers'.
  template <class Reply>
  void Call(RetryOptions options, std::function<void(absl::Time, Done<Reply>)> attempt,
            Done<Reply> done) {
    const uint64_t seed = DeriveSeed(seed_, "backoff", {calls_.fetch_add(1)});
    std::make_shared<OneCall<Reply>>(timers_, seed, std::move(options), std::move(attempt),
                                     std::move(done))
        ->Attempt();
  }

 private:
  // A call through its attempts; kept alive by the attempt or the timer that is pending. Its
  // members are used by one attempt after the other, which the attempt's answer and the timer put
  // in order.
  template <class Reply>
  class OneCall : public std::enable_shared_from_this<OneCall<Reply>> {
   public:
    OneCall(std::shared_ptr<Timers> timers, uint64_t seed, RetryOptions options,
            std::function<void(absl::Time, Done<Reply>)> attempt, Done<Reply> done)
        : timers_(std::move(timers)),
          options_(std::move(options)),
          attempt_(std::move(attempt)),
          done_(std::move(done)),
          started_(timers_->Now()),
          deadline_(options_.deadline),
          backoff_(options_.backoff, seed) {}

    void Attempt() {
      attempt_started_ = timers_->Now();
      const absl::Time deadline = std::min(deadline_, attempt_started_ + options_.attempt_timeout);
      attempt_(deadline, [self = this->shared_from_this()](absl::StatusOr<Reply> reply) {
        self->OnAnswer(std::move(reply));
      });
    }

   private:
    void OnAnswer(absl::StatusOr<Reply> reply) {
      const absl::Time now = timers_->Now();
      const RetryAction action = ActionFor(reply.status().code());
      if (action == RetryAction::kRefresh) {
        if (refreshing_since_ == absl::InfiniteFuture()) refreshing_since_ = now;
      } else {
        refreshing_since_ = absl::InfiniteFuture();
      }
      if (action == RetryAction::kDone || action == RetryAction::kGiveUp ||
          (action == RetryAction::kRefresh &&
           now - refreshing_since_ >= options_.refresh_timeout)) {
        return End(std::move(reply));
      }
      // An attempt that was parked for long found its peer well: no need to hold back.
      if (now - attempt_started_ >= options_.backoff.longest) backoff_.Reset();
      const absl::Time next = now + backoff_.Next();
      if (next >= deadline_ && options_.go_on && options_.go_on()) {
        deadline_ = now + (options_.deadline - started_);
      }
      if (next >= deadline_) {
        return End(absl::DeadlineExceededError(
            absl::StrFormat("%s: no success within %.1f s; the last answer was %s", options_.what,
                            absl::ToDoubleSeconds(now - started_), reply.status().ToString())));
      }
      timers_->RunAt(next, [self = this->shared_from_this()] { self->Attempt(); });
    }

    void End(absl::StatusOr<Reply> reply) {
      // The closures may hold what holds us.
      attempt_ = nullptr;
      Done<Reply> done = std::move(done_);
      done_ = nullptr;
      done(std::move(reply));
    }

    const std::shared_ptr<Timers> timers_;
    const RetryOptions options_;
    std::function<void(absl::Time, Done<Reply>)> attempt_;
    Done<Reply> done_;
    const absl::Time started_;
    absl::Time deadline_;
    absl::Time attempt_started_;
    absl::Time refreshing_since_ = absl::InfiniteFuture();
    Backoff backoff_;
  };

  const std::shared_ptr<Timers> timers_;
  const uint64_t seed_;
  std::atomic<uint64_t> calls_{0};
};

}  // namespace parley

#endif  // PARLEY_CLIENT_RETRYING_CALLER_H_
