#include "server/coordinator/training_progress.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/job/data_division.h"
#include "server/coordinator/first_cause.h"

namespace parley {

void TrainingProgress::Start(uint64_t version, DataPosition position, uint64_t training_samples) {
  step_ = version;
  position_ = std::move(position);
  data_epoch_ = position_.epoch();
  training_samples_ = training_samples;
}

void TrainingProgress::RollBack(uint64_t version, DataPosition position) {
  step_ = version;
  next_attempt_ = 0;
  position_ = std::move(position);
  data_epoch_ = position_.epoch();
}

void TrainingProgress::StartClock(absl::Time now) {
  started_ = std::min(started_, now);
  stopped_ = absl::InfiniteFuture();
  marks_.push_back({now, samples_});
}

void TrainingProgress::StopClock(absl::Time now) { stopped_ = std::min(stopped_, now); }

absl::Status TrainingProgress::Add(const Verdict& verdict, absl::Time now) {
  if (verdict.step() <= step_) return absl::OkStatus();
  if (verdict.step() != step_ + 1) {
    return absl::InvalidArgumentError(absl::StrCat("verdict of step ", verdict.step(),
                                                   " where the last one known is of step ", step_,
                                                   ": those between are missing"));
  }
  if (verdict.attempt() < next_attempt_) return absl::OkStatus();
  const std::string what = absl::StrCat("verdict of step ", verdict.step(), ": ");
  if (verdict.outcome() == Verdict::RETRY) {
    next_attempt_ = verdict.attempt() + 1;
    ++retried_;
    return absl::OkStatus();
  }
  if (verdict.outcome() != Verdict::APPLY && verdict.outcome() != Verdict::SKIP) {
    return absl::InvalidArgumentError(absl::StrCat(what, "no outcome"));
  }

  std::vector<SampleRange> ranges;
  uint64_t samples = 0;
  double loss_sum = 0;
  for (const Share& share : verdict.shares()) {
    ranges.insert(ranges.end(), share.ranges().begin(), share.ranges().end());
    samples += share.samples();
    loss_sum += share.loss_sum();
  }
  DataPosition position = position_;
  if (!ranges.empty()) {
    // All at once: the last range of a data epoch moves the position on to the next.
    absl::Status used = MarkUsed(position, verdict.data_epoch(), ranges, training_samples_);
    if (!used.ok()) return absl::InvalidArgumentError(absl::StrCat(what, used.message()));
  }

  position_ = std::move(position);
  step_ = verdict.step();
  next_attempt_ = 0;
  data_epoch_ = verdict.data_epoch();
  samples_ += samples;
  if (samples != 0) loss_ = loss_sum / samples;
  ++(verdict.outcome() == Verdict::APPLY ? applied_ : skipped_);
  marks_.push_back({now, samples_});
  while (marks_.size() > 2 && marks_[1].time <= now - kWindow) marks_.pop_front();
  return absl::OkStatus();
}

bool TrainingProgress::IsBehind(const JobProgress& progress,
                                const google::protobuf::RepeatedPtrField<Verdict>& verdicts) const {
  uint64_t step = step_;
  for (const Verdict& verdict : verdicts) {
    if (verdict.step() == step + 1 && verdict.outcome() != Verdict::RETRY) ++step;
  }
  return step < progress.step();
}

absl::Status TrainingProgress::CatchUp(const JobProgress& progress,
                                       const google::protobuf::RepeatedPtrField<Verdict>& verdicts,
                                       absl::Time now) {
  const std::string what = absl::StrCat("progress at step ", progress.step(), ": ");
  if (progress.step() < step_ || progress.position().epoch() < position_.epoch()) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, "step ", step_, " and data epoch ", position_.epoch(),
        " are reached here, it would go back to data epoch ", progress.position().epoch()));
  }
  DataPosition position;
  position.set_epoch(progress.position().epoch());
  if (progress.position().used_size() != 0) {
    const absl::Status used = MarkUsed(
        position, position.epoch(),
        {progress.position().used().begin(), progress.position().used().end()}, training_samples_);
    if (!used.ok()) return absl::InvalidArgumentError(absl::StrCat(what, used.message()));
  }
  const Verdict* last = nullptr;
  uint32_t next_attempt = 0;
  for (const Verdict& verdict : verdicts) {
    const bool decided = verdict.outcome() != Verdict::RETRY;
    if (verdict.step() > progress.step() + (decided ? 0 : 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, "it comes with a verdict of step ", verdict.step()));
    }
    if (decided && verdict.step() == progress.step()) last = &verdict;
    if (verdict.step() == progress.step() + 1) next_attempt = verdict.attempt() + 1;
  }

  step_ = progress.step();
  next_attempt_ = next_attempt;
  position_ = std::move(position);
  data_epoch_ = last != nullptr ? last->data_epoch() : position_.epoch();
  // Counters only rise, as metrics do.
  samples_ = std::max<uint64_t>(samples_, progress.samples());
  applied_ = std::max<uint64_t>(applied_, progress.applied());
  skipped_ = std::max<uint64_t>(skipped_, progress.skipped());
  retried_ = std::max<uint64_t>(retried_, progress.retried());
  if (last != nullptr) {
    uint64_t samples = 0;
    double loss_sum = 0;
    for (const Share& share : last->shares()) {
      samples += share.samples();
      loss_sum += share.loss_sum();
    }
    if (samples != 0) loss_ = loss_sum / samples;
  }
  // What was used meanwhile took longer than the window shows.
  if (!marks_.empty()) marks_.assign(1, {now, samples_});
  return absl::OkStatus();
}

void TrainingProgress::Write(LoggedProgress& logged) const {
  JobProgress& at = *logged.mutable_at();
  at.set_step(step_);
  *at.mutable_position() = position_;
  at.set_samples(samples_);
  at.set_applied(applied_);
  at.set_skipped(skipped_);
  at.set_retried(retried_);
  logged.set_next_attempt(next_attempt_);
  logged.set_data_epoch(data_epoch_);
  logged.set_loss(loss_);
  if (started_ != absl::InfiniteFuture()) {
    logged.set_started_unix_micros(absl::ToUnixMicros(started_));
  }
  if (stopped_ != absl::InfiniteFuture()) {
    logged.set_stopped_unix_micros(absl::ToUnixMicros(stopped_));
  }
}

absl::Status TrainingProgress::Read(const LoggedProgress& logged) {
  const JobProgress& at = logged.at();
  if (at.position().used_size() != 0) {
    DataPosition position;
    position.set_epoch(at.position().epoch());
    const absl::Status used =
        MarkUsed(position, position.epoch(),
                 {at.position().used().begin(), at.position().used().end()}, training_samples_);
    if (!used.ok()) return absl::DataLossError(used.message());
  }
  step_ = at.step();
  next_attempt_ = logged.next_attempt();
  position_ = at.position();
  data_epoch_ = logged.data_epoch();
  samples_ = at.samples();
  loss_ = logged.loss();
  applied_ = at.applied();
  skipped_ = at.skipped();
  retried_ = at.retried();
  if (logged.started_unix_micros() != 0) {
    started_ = absl::FromUnixMicros(logged.started_unix_micros());
  }
  if (logged.stopped_unix_micros() != 0) {
    stopped_ = absl::FromUnixMicros(logged.stopped_unix_micros());
  }
  return absl::OkStatus();
}

void TrainingProgress::Resume(absl::Time now) {
  if (started_ != absl::InfiniteFuture()) marks_.assign(1, {now, samples_});
}

double TrainingProgress::SamplesPerSecond(absl::Time now) const {
  if (marks_.empty()) return 0;
  // The newest mark at or before the window's begin, else the oldest.
  size_t first = 0;
  while (first + 1 < marks_.size() && marks_[first + 1].time <= now - kWindow) ++first;
  const double seconds = absl::ToDoubleSeconds(std::min(now, stopped_) - marks_[first].time);
  if (seconds <= 0) return 0;
  return (marks_.back().samples - marks_[first].samples) / seconds;
}

double TrainingProgress::SecondsTraining(absl::Time now) const {
  return std::max(0.0, absl::ToDoubleSeconds(std::min(now, stopped_) - std::min(now, started_)));
}

absl::Status WorkersFinished::CheckPhases(const FinishRequest& request) const {
  std::set<absl::string_view> more;
  for (const PhaseSeconds& phase : request.seconds()) {
    const std::string& name = phase.phase();
    if (name.size() > kMostPhaseBytes) {
      return absl::InvalidArgumentError(absl::StrCat("the name of a phase has ", name.size(),
                                                     " bytes; it may have ", kMostPhaseBytes));
    }
    if (std::any_of(name.begin(), name.end(), absl::ascii_iscntrl)) {
      return absl::InvalidArgumentError("the name of a phase has control characters");
    }
    if (seconds_.count(name) == 0) more.insert(name);
  }
  if (seconds_.size() + more.size() <= kMostPhases) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("with its phases there are ",
                                                 seconds_.size() + more.size(),
                                                 " of all workers; there may be ", kMostPhases));
}

absl::Status WorkersFinished::Add(const Member& worker, const FinishRequest& request) {
  if (has(worker.id())) return absl::OkStatus();
  if (!last_step_.empty() && last_step() != request.last_step()) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(worker), " finished with step ",
                                                   request.last_step(), ", another one with step ",
                                                   last_step()));
  }
  if (absl::Status wrong = CheckPhases(request); !wrong.ok()) {
    return absl::Status(wrong.code(), absl::StrCat(Describe(worker), ": ", wrong.message()));
  }
  begun_ = true;
  last_step_[worker.id()] = request.last_step();
  for (const PhaseSeconds& phase : request.seconds()) seconds_[phase.phase()] += phase.seconds();
  return absl::OkStatus();
}

void WorkersFinished::Write(CoordinatorState& state) const {
  for (const auto& [member, last_step] : last_step_) {
    FinishedWorker* finished = state.add_finished();
    finished->set_member(member);
    finished->set_last_step(last_step);
  }
  state.set_finish_begun(begun_);
  for (const auto& [phase, seconds] : seconds_) {
    PhaseSeconds* sum = state.add_phase_seconds();
    sum->set_phase(phase);
    sum->set_seconds(seconds);
  }
}

void WorkersFinished::Read(const CoordinatorState& state) {
  for (const FinishedWorker& worker : state.finished()) {
    last_step_[worker.member()] = worker.last_step();
  }
  begun_ = state.finish_begun();
  for (const PhaseSeconds& sum : state.phase_seconds()) seconds_[sum.phase()] = sum.seconds();
}

}  // namespace parley
