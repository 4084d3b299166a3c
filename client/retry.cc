#include "client/retry.h"

#include <algorithm>

#include "common/seed.h"

namespace parley {

RetryAction ActionFor(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return RetryAction::kDone;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    // gRPC's own words for a connection or a server that went away during the call; our services
    // never answer with them.
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnknown:
      return RetryAction::kRetry;
    case absl::StatusCode::kResourceExhausted:
      return RetryAction::kWait;
    case absl::StatusCode::kFailedPrecondition:
      return RetryAction::kRefresh;
    default:
      return RetryAction::kGiveUp;
  }
}

absl::Duration Backoff::Next() {
  const absl::Duration most = std::min(next_, policy_.longest);
  next_ = std::min(policy_.longest, next_ * policy_.factor);
  const uint64_t random = DeriveSeed(seed_, "backoff", {waits_++});
  const double uniform = static_cast<double>(random >> 11) * 0x1.0p-53;  // a double has 53 bits
  return most * (0.5 + 0.5 * uniform);
}

}  // namespace parley
