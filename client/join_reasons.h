#ifndef PARLEY_CLIENT_JOIN_REASONS_H_
#define PARLEY_CLIENT_JOIN_REASONS_H_

#include <deque>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace parley {

// Why a process that asks again and again is not taken in, and when that is worth another line of
// its log: it may ask each second, for weeks. Has no clock. Not thread-safe.
class JoinReasons {
 public:
  // It was not, for this reason. True for one that has not been told within the last ten minutes:
  // one of two that take turns is no news either.
  bool IsNews(absl::string_view reason, absl::Time now);

 private:
  struct Told {
    std::string reason;
    absl::Time at;
  };
  std::deque<Told> told_;  // within those minutes, the oldest first
};

}  // namespace parley

#endif  // PARLEY_CLIENT_JOIN_REASONS_H_
