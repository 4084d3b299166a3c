#ifndef PARLEY_SERVER_COORDINATOR_COURSE_H_
#define PARLEY_SERVER_COORDINATOR_COURSE_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/coordinator.pb.h"
#include "server/coordinator/coordinator.h"

namespace parley {

// Where a job is, as its history tells it: a copy of the numbers, so that the core's lock is not
// held while files are written.
struct CourseNumbers {
  uint64_t generation = 0;
  uint64_t job_epoch = 0;
  uint64_t view_epoch = 0;
  Phase phase = PHASE_UNSPECIFIED;
  uint64_t step = 0;  // last decided
  uint64_t data_epoch = 0;
  uint64_t samples = 0;
  double loss = 0;
  double samples_per_second = 0;
  uint64_t workers = 0;     // that stand behind the view's contributors
  std::string start_from;   // of the view
  uint64_t start_step = 0;  // likewise
  uint64_t steps_lost = 0;
  std::vector<Evaluation> evaluations;  // whole ones
  uint64_t checkpoints_written = 0;
  uint64_t checkpoints_failed = 0;
  std::string checkpoint;  // the last whole one
  uint64_t checkpoint_step = 0;
  absl::Duration checkpoint_duration;
  std::string checkpoint_error;  // of the last one that failed
  std::optional<FirstCause> cause;

  static CourseNumbers Read(const CoordinatorCore& core, absl::Time now);
};

// Something that happened in a job's life, of which history.jsonl has a line.
struct CourseEvent {
  enum class Kind {
    kStart,       // of this coordinator
    kView,        // others take part, or all went back to a checkpoint
    kStep,        // decided
    kEvaluation,  // of a version
    kCheckpoint,  // whole or given up
    kEnd,         // of the job
  };
  Kind kind = Kind::kStart;
  absl::Time time;
  CourseNumbers at;         // then
  bool goes_on = false;     // kStart: from an earlier coordinator
  bool went_back = false;   // kView: the next step is the one after at.start_step
  uint64_t steps_lost = 0;  // kView, where they went back
  Evaluation evaluation;    // kEvaluation
  bool is_whole = false;    // kCheckpoint
};

// Which events there are, from what the coordinator knows again and again. Not each step is one
// where they are many in a second; the last one before training pauses or ends is. What an earlier
// coordinator has seen is not told again. Owned by Reporter, on main's thread.
class Course {
 public:
  // Of two steps that are told while training goes on, at least.
  static constexpr absl::Duration kStepPeriod = absl::Milliseconds(200);

  // What has happened since the last call; the first one tells of the start.
  std::vector<CourseEvent> See(CourseNumbers numbers, absl::Time now);

 private:
  bool IsStepDue(const CourseNumbers& numbers, absl::Time now) const;

  bool started_ = false;
  CourseNumbers last_;
  uint64_t step_ = 0;  // told
  absl::Time step_at_ = absl::InfinitePast();
  std::set<uint64_t> evaluated_;  // versions
};

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_COURSE_H_
