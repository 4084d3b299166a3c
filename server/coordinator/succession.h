#ifndef PARLEY_SERVER_COORDINATOR_SUCCESSION_H_
#define PARLEY_SERVER_COORDINATOR_SUCCESSION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/coordinator.pb.h"

namespace parley {

// Whether a coordinator that starts may take the rule of a job, as a plain state machine: no clock,
// no files, no calls. AwaitRule (await_rule.h) runs it.
//
// It looks into the job's directory and asks at the addresses it finds there, in rounds. If a
// coordinator of this job answers, it is refused. If there is no trace of one, or only that of one
// which has gone with a job that had ended, it may take the rule at once; else only when for
// `liveness` nothing new has come into the directory and a last round has found nobody either. (Two
// that both may are decided by the log, where one gets the number.)
class Succession {
 public:
  // What the directory shows.
  struct Sighting {
    uint64_t number = 0;      // of the newest record; 0: there is none
    uint64_t generation = 0;  // of who wrote it
    std::string writer;       // where that one answers, by the record
    std::string address;      // by the address file; empty: there is none
    bool over = false;        // by the record: that job has ended, and its coordinator has gone
    bool operator==(const Sighting& other) const;
  };

  enum class Kind {
    kLook,     // look into the directory and call Looked
    kAsk,      // GetStatus at `address`, with a deadline, and call Answered
    kWait,     // until `until` at most
    kTake,     // final: take the next number after the last look, with a higher generation
    kRefused,  // final: `status` says why
  };
  struct Next {
    Kind kind = Kind::kLook;
    std::string address;
    absl::Time until;
    absl::Status status;
  };

  Succession(std::string job, absl::Duration liveness, absl::Time now);

  // What to do now.
  //   ALREADY_EXISTS  (kRefused) a coordinator of this job answers: its generation and address
  //   UNAVAILABLE     (kRefused) for kPatience * liveness one has written records, but it does not
  //                   answer here
  Next Decide(absl::Time now);

  void Looked(const Sighting& sighting, absl::Time now);
  // What came of kAsk. An answer for another job, or of a coordinator older than the newest record,
  // is none.
  void Answered(const absl::StatusOr<GetStatusReply>& reply, absl::Time now);

  static constexpr int kPatience = 6;

 private:
  enum class State { kLooking, kAsking, kResting, kMayTake, kRefused };

  void EndRound(absl::Time now);

  const std::string job_;
  const absl::Duration liveness_;
  absl::Time began_;

  State state_ = State::kLooking;
  std::optional<Sighting> sighting_;
  absl::Time looked_at_;             // the last time
  absl::Time quiet_since_;           // nothing new has come since
  std::vector<std::string> to_ask_;  // in this round; the next one last
  absl::Time rest_until_;
  absl::Status refused_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_SUCCESSION_H_
