#include "server/coordinator/course.h"

#include <unordered_set>
#include <utility>

namespace parley {
namespace {

uint64_t WorkersAtWork(const CoordinatorCore& core) {
  std::unordered_set<uint64_t> at_work;
  for (const Contributor& contributor : core.view().contributors()) {
    at_work.insert(contributor.part_members().begin(), contributor.part_members().end());
  }
  uint64_t workers = 0;
  for (const Member& member : core.Members()) {
    if (member.role() == WORKER && at_work.count(member.id()) != 0) ++workers;
  }
  return workers;
}

}  // namespace

CourseNumbers CourseNumbers::Read(const CoordinatorCore& core, absl::Time now) {
  CourseNumbers numbers;
  numbers.generation = core.generation();
  numbers.job_epoch = core.job_epoch();
  numbers.view_epoch = core.view_epoch();
  numbers.phase = core.phase();
  numbers.step = core.progress().step();
  numbers.data_epoch = core.progress().data_epoch();
  numbers.samples = core.progress().samples();
  numbers.loss = core.progress().loss();
  numbers.samples_per_second = core.progress().SamplesPerSecond(now);
  numbers.workers = WorkersAtWork(core);
  numbers.start_from = core.view().start_from();
  numbers.start_step = core.view().start_version();
  numbers.steps_lost = core.steps_lost();
  numbers.evaluations = core.evaluations().Whole();
  numbers.checkpoints_written = core.checkpoint().written();
  numbers.checkpoints_failed = core.checkpoint().failed();
  numbers.checkpoint = core.checkpoint().whole_folder();
  numbers.checkpoint_step = core.checkpoint().whole_step();
  numbers.checkpoint_duration = core.checkpoint().duration();
  numbers.checkpoint_error = core.checkpoint().error();
  numbers.cause = core.cause();
  return numbers;
}

bool Course::IsStepDue(const CourseNumbers& numbers, absl::Time now) const {
  if (numbers.step == step_) return false;
  switch (numbers.phase) {
    case TRAINING:
      return now - step_at_ >= kStepPeriod;
    case SAVING:
    case FINISHED:
    case FAILED:
      return true;
    default:
      return false;  // a checkpoint's, that all start from
  }
}

std::vector<CourseEvent> Course::See(CourseNumbers numbers, absl::Time now) {
  std::vector<CourseEvent> events;
  const auto tell = [&](CourseEvent::Kind kind) -> CourseEvent& {
    CourseEvent& event = events.emplace_back();
    event.kind = kind;
    event.time = now;
    event.at = numbers;
    return event;
  };
  if (!std::exchange(started_, true)) {
    tell(CourseEvent::Kind::kStart).goes_on = numbers.generation > 1 && numbers.view_epoch != 0;
    last_ = numbers;
    last_.checkpoints_written = 0;  // they count from the process's start
    step_ = numbers.step;
    for (const Evaluation& one : numbers.evaluations) evaluated_.insert(one.version());
  }
  const bool goes_back = last_.job_epoch != 0 && numbers.job_epoch > last_.job_epoch;
  if (goes_back || numbers.view_epoch != last_.view_epoch) {
    CourseEvent& view = tell(CourseEvent::Kind::kView);
    view.went_back = goes_back;
    if (goes_back) view.steps_lost = numbers.steps_lost - last_.steps_lost;
    // The version that all start from is no step of this view.
    if (goes_back || last_.view_epoch == 0) step_ = numbers.start_step;
    if (goes_back) evaluated_.erase(evaluated_.upper_bound(numbers.start_step), evaluated_.end());
  }
  if (IsStepDue(numbers, now)) {
    tell(CourseEvent::Kind::kStep);
    step_ = numbers.step;
    step_at_ = now;
  }
  for (const Evaluation& one : numbers.evaluations) {
    if (!evaluated_.insert(one.version()).second) continue;
    tell(CourseEvent::Kind::kEvaluation).evaluation = one;
  }
  if (numbers.checkpoints_failed != last_.checkpoints_failed) {
    tell(CourseEvent::Kind::kCheckpoint);
  }
  if (numbers.checkpoints_written != last_.checkpoints_written) {
    tell(CourseEvent::Kind::kCheckpoint).is_whole = true;
  }
  const bool ended = numbers.phase == FINISHED || numbers.phase == FAILED;
  if (ended && numbers.phase != last_.phase) tell(CourseEvent::Kind::kEnd);
  last_ = std::move(numbers);
  return events;
}

}  // namespace parley
