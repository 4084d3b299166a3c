#ifndef PARLEY_SERVER_COORDINATOR_TRAINING_PROGRESS_H_
#define PARLEY_SERVER_COORDINATOR_TRAINING_PROGRESS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/coordinator.pb.h"
#include "proto/coordinator_log.pb.h"

namespace parley {

// What the verdicts tell: how far the job is, and which data it has used. Owned by CoordinatorCore,
// under its lock.
class TrainingProgress {
 public:
  // Training begins after `version`, with `position` used already.
  void Start(uint64_t version, DataPosition position, uint64_t training_samples);
  // All go back to this version: the next step is the one after it. Counts stay, since they only
  // rise.
  void RollBack(uint64_t version, DataPosition position);
  // The clock of SecondsTraining.
  void StartClock(absl::Time now);
  void StopClock(absl::Time now);

  // One decision of the step leader. A repeated one is ignored. INVALID_ARGUMENT, without effect,
  // for a gap, for no outcome, and for ranges that are used already or of another data epoch.
  absl::Status Add(const Verdict& verdict, absl::Time now);

  // Whether `verdicts` do not lead to where the step leader says the job is: some were told while
  // nobody listened.
  bool IsBehind(const JobProgress& progress,
                const google::protobuf::RepeatedPtrField<Verdict>& verdicts) const;
  // Goes on from where the step leader says the job is, after `verdicts`. INVALID_ARGUMENT, without
  // effect, if that contradicts the verdicts, the data, or what is known here.
  absl::Status CatchUp(const JobProgress& progress,
                       const google::protobuf::RepeatedPtrField<Verdict>& verdicts, absl::Time now);

  // For the log. Read: after Start, with what Write made; DATA_LOSS, without effect, if that
  // contradicts the data.
  void Write(LoggedProgress& logged) const;
  absl::Status Read(const LoggedProgress& logged);
  // The throughput is counted from now on.
  void Resume(absl::Time now);

  uint64_t step() const { return step_; }  // last decided
  const DataPosition& position() const { return position_; }
  uint64_t data_epoch() const { return data_epoch_; }
  uint64_t samples() const { return samples_; }
  double loss() const { return loss_; }
  uint64_t applied() const { return applied_; }
  uint64_t skipped() const { return skipped_; }
  uint64_t retried() const { return retried_; }

  // Over the last kWindow, or since the start of training if that is less.
  double SamplesPerSecond(absl::Time now) const;
  double SecondsTraining(absl::Time now) const;

  static constexpr absl::Duration kWindow = absl::Seconds(10);

 private:
  struct Mark {
    absl::Time time;
    uint64_t samples;
  };

  uint64_t step_ = 0;
  uint32_t next_attempt_ = 0;  // of step_ + 1: lower ones are over
  DataPosition position_;
  uint64_t training_samples_ = 0;
  uint64_t data_epoch_ = 0;
  uint64_t samples_ = 0;
  double loss_ = 0;
  uint64_t applied_ = 0;
  uint64_t skipped_ = 0;
  uint64_t retried_ = 0;
  absl::Time started_ = absl::InfiniteFuture();
  absl::Time stopped_ = absl::InfiniteFuture();
  std::deque<Mark> marks_;  // the last kWindow; the first one is at or before its begin
};

// Which workers have done all their steps, and where their time went. Owned by CoordinatorCore.
class WorkersFinished {
 public:
  // Names of phases of all workers, and bytes of each: they are in each record of the coordinator's
  // log, and in the table at the end.
  static constexpr size_t kMostPhases = 256;
  static constexpr size_t kMostPhaseBytes = 256;

  // INVALID_ARGUMENT, without effect, if another worker ended with another step, or the phases are
  // too many, or have names too long or with control characters. Repeating it changes nothing.
  absl::Status Add(const Member& worker, const FinishRequest& request);

  // There are steps to do again; each will tell the seconds of all its steps then.
  void RollBack() {
    last_step_.clear();
    seconds_.clear();
    begun_ = false;
  }

  // A worker that is lost hinders nobody and binds nobody to its last step; its seconds stay.
  void Forget(uint64_t member) { last_step_.erase(member); }

  // For the log.
  void Write(CoordinatorState& state) const;
  void Read(const CoordinatorState& state);

  bool has(uint64_t member) const { return last_step_.count(member) != 0; }
  // Somebody has finished, be it a worker that was lost later: all steps of the job are decided.
  bool begun() const { return begun_; }
  uint64_t last_step() const { return last_step_.empty() ? 0 : last_step_.begin()->second; }
  // Seconds by phase name, summed over workers.
  const std::map<std::string, double>& seconds() const { return seconds_; }

 private:
  absl::Status CheckPhases(const FinishRequest& request) const;

  std::map<uint64_t, uint64_t> last_step_;  // by member
  std::map<std::string, double> seconds_;
  bool begun_ = false;
};

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_TRAINING_PROGRESS_H_
