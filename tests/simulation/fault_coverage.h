#ifndef PARLEY_TESTS_SIMULATION_FAULT_COVERAGE_H_
#define PARLEY_TESTS_SIMULATION_FAULT_COVERAGE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace parley {

// How often each kind of fault met each state of a simulated job's processes. Only counts.
class FaultCoverage {
 public:
  // One fault, in all states that hold at that moment.
  void Met(std::string_view fault, const std::vector<std::string_view>& states);
  void Add(const FaultCoverage& other);

  // One row for each fault, as text; "-" in cells that WhyNever excuses.
  std::string Table(const std::vector<std::string_view>& faults,
                    const std::vector<std::string_view>& states) const;
  // "fault / state" of the cells that are empty and not excused.
  std::vector<std::string> Empty(const std::vector<std::string_view>& faults,
                                 const std::vector<std::string_view>& states) const;

 private:
  static constexpr int kWidth = 19;
  uint64_t Count(std::string_view fault, std::string_view state) const;

  std::map<std::string, std::map<std::string, uint64_t, std::less<>>, std::less<>> counts_;
};

// Why this fault cannot meet this state, whatever the seed; empty if it can.
std::string_view WhyNever(std::string_view fault, std::string_view state);

// The faults of messages, and those of processes, as they are counted.
inline constexpr std::string_view kRequestLost = "request lost";
inline constexpr std::string_view kReplyLost = "reply lost";
inline constexpr std::string_view kDuplicated = "request duplicated";
inline constexpr std::string_view kLate = "message late";
inline constexpr std::string_view kOvertaken = "request overtaken";
inline constexpr std::string_view kCutOff = "message cut off";
inline constexpr std::string_view kStopped = "process stopped";
inline constexpr std::string_view kCut = "two processes cut";
inline constexpr std::string_view kStoppedLong = "worker stopped past lease";
inline constexpr std::string_view kKilled = "worker killed";
inline constexpr std::string_view kShardKilled = "shard killed";
inline constexpr std::string_view kShardStarted = "shard started anew";
inline constexpr std::string_view kIsolated = "worker isolated";
inline constexpr std::string_view kStarted = "worker started anew";
inline constexpr std::string_view kCoordinatorKilled = "coordinator killed";
inline constexpr std::string_view kCoordinatorStopped = "coordinator stopped";
inline constexpr std::string_view kCoordinatorCutOff = "coordinator cut off";
inline constexpr std::string_view kRival = "second coordinator";
inline constexpr std::string_view kDiskFails = "disk fails";
inline constexpr std::string_view kScaled = "workers scaled";  // no fault, but no less trouble

// What a job can be in. In sync, the open step:
inline constexpr std::string_view kBeforeTraining = "before training";
inline constexpr std::string_view kNobodyComplete = "nobody complete";
inline constexpr std::string_view kSomeComplete = "some complete";
inline constexpr std::string_view kClosing = "norms asked for";
inline constexpr std::string_view kDeciding = "verdict on its way";
inline constexpr std::string_view kRepeated = "attempt repeated";
inline constexpr std::string_view kPullsParked = "pulls parked";
inline constexpr std::string_view kEntersParked = "Enter parked";
// In bounded and async, instead of the first six:
inline constexpr std::string_view kAllAtWork = "all at work";
inline constexpr std::string_view kAtTheBound = "at the bound";
inline constexpr std::string_view kIdle = "some without lease";
inline constexpr std::string_view kBarrier = "barrier";
// In each mode:
inline constexpr std::string_view kCheckpoint = "checkpoint";  // is being written
inline constexpr std::string_view kAfterTraining = "after training";
// The worker that it concerns:
inline constexpr std::string_view kJoining = "joining";
inline constexpr std::string_view kPulling = "pulling";
inline constexpr std::string_view kComputing = "computing";
inline constexpr std::string_view kCompleting = "pushing, completing";
inline constexpr std::string_view kEvaluating = "evaluating";
inline constexpr std::string_view kFinishing = "finishing";

}  // namespace parley

#endif  // PARLEY_TESTS_SIMULATION_FAULT_COVERAGE_H_
