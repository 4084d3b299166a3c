#ifndef PARLEY_COMMON_REPLIES_H_
#define PARLEY_COMMON_REPLIES_H_

#include <functional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace parley {

// How a call is answered. Called exactly once, on any thread, never under a lock of the callee.
template <class Reply>
using Done = std::function<void(absl::StatusOr<Reply>)>;

// When a call arrived and how long its caller waits. Cores never read a clock: time reaches them
// here and in Tick.
struct CallTime {
  absl::Time now;
  absl::Time deadline = absl::InfiniteFuture();
};

// Answers that a core has decided on while its lock was held. They run when the object is
// destroyed, so declare it before the lock is taken:
//
//   Replies replies;
//   absl::MutexLock lock(&mu_);
//   core_.Push(request, time, replies, done);
class Replies {
 public:
  Replies() = default;
  Replies(const Replies&) = delete;
  Replies& operator=(const Replies&) = delete;
  ~Replies() {
    for (auto& reply : replies_) reply();
  }

  void Add(std::function<void()> reply) { replies_.push_back(std::move(reply)); }

  template <class Reply>
  void Add(Done<Reply> done, absl::StatusOr<Reply> reply) {
    replies_.push_back(
        [done = std::move(done), reply = std::move(reply)]() mutable { done(std::move(reply)); });
  }

 private:
  std::vector<std::function<void()>> replies_;
};

}  // namespace parley

#endif  // PARLEY_COMMON_REPLIES_H_
