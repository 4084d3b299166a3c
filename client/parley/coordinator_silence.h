#ifndef PARLEY_CLIENT_PARLEY_COORDINATOR_SILENCE_H_
#define PARLEY_CLIENT_PARLEY_COORDINATOR_SILENCE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace parley {

// How long a command that waits for something of a job goes on asking a coordinator that does not
// answer: one that has told the end is there for a second more, and one that is away may be back
// soon; but one that is silent for longer than 20 s may have been killed. Has no clock.
class CoordinatorSilence {
 public:
  // asked: when it answered last.
  explicit CoordinatorSilence(absl::Time asked) : heard_at_(asked) {}

  // What it was asked at `now` has come to. UNAVAILABLE once it has gone, without a word of
  // `what`: "how the job ended".
  absl::Status Heard(const absl::Status& answer, absl::Time now, const std::string& what);

 private:
  absl::Time heard_at_;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_COORDINATOR_SILENCE_H_
