#ifndef PARLEY_CLIENT_RETRY_H_
#define PARLEY_CLIENT_RETRY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace parley {

// What a caller does about the status of one attempt (docs/api.md, status codes).
enum class RetryAction {
  kDone,     // OK
  kRetry,    // the peer could not be reached or did not answer: again until the caller's deadline
  kWait,     // the peer has no room now: again until the caller's deadline
  kRefresh,  // the caller's view is old: again with the newest one, for as long as a view needs to
             // arrive
  kGiveUp,   // the caller is wrong, fenced or rolled back, or data is damaged: never again
};

RetryAction ActionFor(absl::StatusCode code);

struct BackoffPolicy {
  absl::Duration first = absl::Milliseconds(20);
  absl::Duration longest = absl::Seconds(1);
  double factor = 2;
};

// Waits between attempts: exponential with full jitter over the upper half, so that callers who
// failed together do not come back together. Not thread-safe.
class Backoff {
 public:
  // The waits are a pure function of `seed`. Every call has a Backoff and hardly one ever waits, so
  // there is no generator to set up.
  Backoff(const BackoffPolicy& policy, uint64_t seed) : policy_(policy), seed_(seed) { Reset(); }

  // The next wait: between half of and the whole of first * factor^n, at most `longest`.
  absl::Duration Next();

  // After an attempt that got through.
  void Reset() { next_ = policy_.first; }

  const BackoffPolicy& policy() const { return policy_; }

 private:
  const BackoffPolicy policy_;
  const uint64_t seed_;
  uint64_t waits_ = 0;
  absl::Duration next_;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_RETRY_H_
