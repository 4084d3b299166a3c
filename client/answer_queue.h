#ifndef PARLEY_CLIENT_ANSWER_QUEUE_H_
#define PARLEY_CLIENT_ANSWER_QUEUE_H_

#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/runtime.h"
#include "client/visitors.h"

namespace parley {

// Where the answers of asynchronous calls meet the one thread that waits for them: answers are
// closures that run on that thread, one after the other, so that what they touch needs no lock.
// Held as shared: answers can come after the waiting thread has gone, and are dropped then.
class AnswerQueue {
 public:
  // visitors, if there are any, must be there whenever RunUntil runs.
  explicit AnswerQueue(std::shared_ptr<Runtime> runtime, Visitors* visitors = nullptr)
      : runtime_(std::move(runtime)), visitors_(visitors) {}

  // Any thread. Dropped after End.
  void Post(std::function<void()> answer);

  // How parts that wait are given RunUntil, with the deadline and the text of the whole.
  using Wait = std::function<absl::Status(const std::function<bool()>& done)>;

  // Every present and later wait ends with this status; the first one counts. Any thread.
  void End(absl::Status why);

  // Runs answers until done() holds, which is looked at first and after each answer. OK when it
  // holds; the status of End; DeadlineExceeded with no more text. `waiting` runs every `interval`
  // while nothing comes.
  absl::Status RunUntil(const std::function<bool()>& done, absl::Time deadline,
                        const std::function<void()>& waiting, absl::Duration interval);

 private:
  bool Ready() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !answers_.empty() || !ended_.ok();
  }

  // Looks for answers where they come in, for as long as it would take to be woken; longer where
  // the last one came soon after that.
  void Visit(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);

  const std::shared_ptr<Runtime> runtime_;
  Visitors* const visitors_;
  absl::Duration last_wait_ = absl::InfiniteDuration();  // of the waiting thread; whole
  absl::Mutex mu_;
  std::deque<std::function<void()>> answers_ ABSL_GUARDED_BY(mu_);
  absl::Status ended_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parley

#endif  // PARLEY_CLIENT_ANSWER_QUEUE_H_
