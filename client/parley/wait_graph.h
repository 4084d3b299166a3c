#ifndef PARLEY_CLIENT_PARLEY_WAIT_GRAPH_H_
#define PARLEY_CLIENT_PARLEY_WAIT_GRAPH_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "proto/waits.pb.h"

namespace parley {

// Who waits for whom in a job, and who holds it up. Pure functions of what the processes have told.

using Place = std::pair<Role, uint32_t>;  // role and ordinal

// "worker-1", "coordinator".
std::string PlaceName(const Place& place);

// A process of the job as the one sees it who asks.
struct AskedProcess {
  enum class Answer {
    kTold,    // what it waits for
    kSilent,  // asked, and no answer came in time
    kCannot,  // lives, but has no server, or one without this question
  };
  Place place;
  std::string name;  // "shard 1 at HOST:PORT (pid 7)"
  Answer answer = Answer::kTold;
  std::string error;        // of the question, unless kTold
  double silent_for = -1;   // seconds since the coordinator heard of it; negative: not known
  std::vector<Wait> waits;  // if kTold
  uint64_t step = 0;        // the last decided one that it knows
};

// What everything comes down to: a process that waits for nobody of the job, or those that wait for
// each other.
struct RootCause {
  enum class Kind {  // in the order in which they are blamed
    kSilent,         // does not answer
    kAbsent,         // a place that no process has
    kCycle,          // several that wait for each other
    kWorking,        // at work itself
    kUntold,         // lives, but cannot say what it waits for
    kIdle,  // waits for nothing, and is waited for: a message was lost, or it is between two
  };
  Kind kind = Kind::kIdle;
  std::vector<Place> places;   // one; of a cycle all, in its order
  std::vector<Place> waiting;  // all that wait for it, directly or not; ascending
  double seconds = 0;          // the longest of those waits, or its own
  std::string text;            // one line
};

// The root causes, the one to blame first. Empty: nobody waits, or works, for as long as
// `longer_than`, and all answer. Shorter waits are the ordinary course of a step; they only count
// where a long one leads to them.
std::vector<RootCause> FindRootCauses(const std::vector<AskedProcess>& processes,
                                      absl::Duration longer_than);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_WAIT_GRAPH_H_
