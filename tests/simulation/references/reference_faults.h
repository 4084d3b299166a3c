#ifndef PARLEY_TESTS_SIMULATION_REFERENCES_REFERENCE_FAULTS_H_
#define PARLEY_TESTS_SIMULATION_REFERENCES_REFERENCE_FAULTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/reference/reference_holder.h"

namespace parley {

// The messages of the protocol, in the order of ToOwner::request.
enum MessageType { kOpen, kRenew, kLeave, kCall, kFork, kDrop, kFetch, kMessageTypes };
inline MessageType TypeOf(const ToOwner& message) {
  return static_cast<MessageType>(message.request.index());
}

enum MessageFault {
  kLost,
  kAnswerLost,
  kTwice,
  kLate,
  kCutOff,
  kKilledBefore,  // the callee, before it has done anything
  kKilledAfter,   // the callee, when it has, and nobody has heard of it yet
  kCallerKilled,  // when the answer comes
  kMessageFaults
};

enum ProcessFault { kKilled, kPausedShortly, kPausedPastTheLease, kIsolated, kProcessFaults };

// What a process is in the middle of.
enum ProcessState {
  kHolds,   // forks
  kIsHeld,  // values that others hold
  kConnecting,
  kCallOpen,  // a numbered call that is not answered
  kFetchOpen,
  kArgumentsOpen,  // of a call that has come
  kRuns,           // a function
  kProcessStates
};

// How often each fault met each type of message, and each state: proof that the seeds reach them.
struct ReferenceCoverage {
  std::array<std::array<uint64_t, kMessageTypes>, kMessageFaults> messages{};
  std::array<std::array<uint64_t, kProcessStates>, kProcessFaults> states{};

  void Add(const ReferenceCoverage& other);
  uint64_t faults() const;  // in all
  // As a table, and the cells that are zero though they can be met.
  std::string Table() const;
  std::vector<std::string> Missing() const;
};

// How often what goes wrong with a message.
struct ReferenceFaults {
  double lost = 0.03;
  double answer_lost = 0.03;
  double twice = 0.05;
  double late = 0.05;
  absl::Duration usual = absl::Milliseconds(2);
  absl::Duration latest = absl::Seconds(1);
  absl::Duration found = absl::Seconds(2);  // until a connection is found dead
  // One type of message fares worse, so that it is overtaken by all others.
  MessageType worst = kMessageTypes;
  double worst_late = 0.5;
};

}  // namespace parley

#endif  // PARLEY_TESTS_SIMULATION_REFERENCES_REFERENCE_FAULTS_H_
