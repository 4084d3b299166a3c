#ifndef PARLEY_SERVER_COORDINATOR_WATCHERS_H_
#define PARLEY_SERVER_COORDINATOR_WATCHERS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/job_state.h"
#include "common/replies.h"
#include "proto/coordinator.pb.h"

namespace parley {

// The same state, for one who is told to go.
SharedJobState ToGo(const WatchReply& state);

// The parked Watch calls, at most one for each member. Owned by CoordinatorCore, under its lock.
class Watchers {
 public:
  // Parks the call until its deadline, of a member that has seen this revision; one that it has
  // parked before is told that nothing is new.
  void Park(uint64_t member, uint64_t seen, absl::Time deadline, Done<SharedJobState> done,
            Replies& replies);
  // Answers all of them; `drained`: who is told to go.
  void Tell(const SharedJobState& state, const std::set<uint64_t>& drained, Replies& replies);
  // Tells those whose deadline has come that nothing is new. Without the state: with thousands of
  // members the view is long, and most calls end so.
  void Expire(absl::Time now, Replies& replies);
  // Answers the member's with an error.
  void Refuse(uint64_t member, const absl::Status& status, Replies& replies);

  size_t size() const { return parked_.size(); }
  // Of the coordinator, from now on.
  void SetGeneration(uint64_t generation) { generation_ = generation; }

 private:
  struct Parked {
    uint64_t seen = 0;
    absl::Time deadline;
    Done<SharedJobState> done;
  };
  SharedJobState NothingNew(const Parked& parked) const;

  uint64_t generation_ = 0;
  std::map<uint64_t, Parked> parked_;  // by member
};

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_WATCHERS_H_
