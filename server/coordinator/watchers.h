#ifndef PARLEY_SERVER_COORDINATOR_WATCHERS_H_
#define PARLEY_SERVER_COORDINATOR_WATCHERS_H_

#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/replies.h"
#include "proto/coordinator.pb.h"

namespace parley {

// The parked Watch calls, at most one for each member. Owned by CoordinatorCore, under its lock.
class Watchers {
 public:
  // Parks the call until `deadline`; one that the member has parked before is answered with
  // `state`.
  void Park(uint64_t member, absl::Time deadline, Done<WatchReply> done, const WatchReply& state,
            Replies& replies);
  // Answers all of them.
  void Tell(const WatchReply& state, Replies& replies);
  // Answers those whose deadline has come.
  void Expire(absl::Time now, const WatchReply& state, Replies& replies);
  // Answers the member's with an error.
  void Refuse(uint64_t member, const absl::Status& status, Replies& replies);

  size_t size() const { return parked_.size(); }
  // Whether any deadline has come: the state is only copied if so.
  bool AnyDue(absl::Time now) const;

 private:
  struct Parked {
    absl::Time deadline;
    Done<WatchReply> done;
  };
  std::map<uint64_t, Parked> parked_;  // by member
};

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_WATCHERS_H_
