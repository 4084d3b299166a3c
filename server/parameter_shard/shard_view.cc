// Shard: who takes part, and from when on.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/consistency.h"
#include "common/job/data_division.h"
#include "common/job/learning_rate.h"
#include "server/parameter_shard/shard.h"

namespace parley {
namespace {

StepGate::Options GateOptions(const JobConfig& job, const Routing& routing) {
  StepGate::Options options;
  options.clip_norm = job.optimizer().clip_norm();
  options.clip = options.clip_norm > 0;
  options.skip_nonfinite = job.optimizer().skip_nonfinite();
  options.backup = job.consistency().sync().backup();
  options.shards = routing.shards();
  if (job.learning_rate().elastic()) options.reference_weight = job.cluster().workers();
  return options;
}

// Whether somebody who stood behind a part of it does so no more.
bool SomebodyLeft(const Contributor& before, const Contributor* now) {
  if (now == nullptr || now->part_members_size() != before.part_members_size()) return true;
  for (int part = 0; part < before.part_members_size(); ++part) {
    const uint64_t member = before.part_members(part);
    if (member != 0 && now->part_members(part) != member) return true;
  }
  return false;
}

bool Nobody(const Contributor& contributor) {
  return std::all_of(contributor.part_members().begin(), contributor.part_members().end(),
                     [](uint64_t member) { return member == 0; });
}

}  // namespace

absl::Status Shard::SetView(const ClusterView& view, absl::Time now, Replies& replies) {
  if (cause_.has_value()) return absl::OkStatus();
  if (routing_ != nullptr) {
    const ClusterView& own = routing_->view();
    if (view.job_epoch() < own.job_epoch() ||
        (view.job_epoch() == own.job_epoch() && view.view_epoch() <= own.view_epoch())) {
      return absl::OkStatus();
    }
  }
  absl::StatusOr<std::shared_ptr<const Routing>> routing = Routing::Make(view, ordinal_);
  if (!routing.ok()) return routing.status();
  if (routing_ == nullptr || view.job_epoch() > routing_->view().job_epoch()) {
    StartEpoch(*std::move(routing), now, replies);
    return absl::OkStatus();
  }
  if (!routing_->SamePlacement(**routing) || routing_->view().step_leader() != view.step_leader()) {
    return absl::UnimplementedError(absl::StrCat(
        "view ", view.view_epoch(), " moves slices or the step leader while the job trains"));
  }
  ChangeMembers(*std::move(routing), now, replies);
  return absl::OkStatus();
}

void Shard::StartEpoch(std::shared_ptr<const Routing> routing, absl::Time now, Replies& replies) {
  RefuseParked(absl::AbortedError(absl::StrCat("the job has been rolled back to step ",
                                               routing->view().start_version())),
               replies);
  routing_ = std::move(routing);
  views_ = {routing_};
  outbox_.clear();
  to_report_.clear();
  ahead_.clear();
  verdicts_.clear();
  evaluation_.reset();
  kept_.clear();
  reserved_ = false;
  marks_.reset();
  checkpoint_version_ = 0;
  checkpoint_.clear();
  table_ = std::make_unique<ParameterTable>(job_, *routing_, resources_);
  decided_.Start(routing_->view());
  gate_.reset();
  clocked_.reset();
  former_ = counts_;
  version_ = routing_->view().start_version();
  if (IsClocked(job_)) {
    StartClocks(now);
  } else if (routing_->is_leader()) {
    gate_.emplace(GateOptions(job_, *routing_));
    marks_.emplace(job_);
  }
  // Of all workers, so that each shard has the same, whichever view it knows.
  PlaceOpenStep(PlaceInData(job_, routing_->view().data_position(),
                            routing_->view().training_samples(), job_.cluster().workers()));
  OpenStep(routing_->view().view_epoch(), now);
  // No verdict names the view of the first step, and the leader's first one may be another.
  opened_as_named_ = false;
}

void Shard::PlaceOpenStep(const SchedulePlace& place) {
  const StepPlace step{
      .step = version_ + 1, .epochs_done = place.epochs_done(), .epochs = place.epochs()};
  table_->Open(step, LearningRateFactor(job_, step));
}

void Shard::OpenStep(uint64_t view_epoch, absl::Time now) {
  attempt_ = 0;
  closed_ = false;
  opened_ = now;
  while (views_.size() > 1 && open_view().view().view_epoch() < view_epoch) views_.pop_front();
  opened_as_named_ = open_view().view().view_epoch() == view_epoch;
  if (!gate_.has_value()) return;
  StepGate::Contributors contributors;
  for (const Contributor& contributor : open_view().view().contributors()) {
    contributors[contributor.ordinal()] = static_cast<uint32_t>(contributor.part_members_size());
  }
  gate_->Open(version_ + 1, std::move(contributors), WithoutData());
}

bool Shard::HasEnded() const {
  const JobProgress& progress = decided_.progress();
  return (job_.has_steps() || job_.has_epochs()) &&
         IsDone(job_, progress.position(), progress.step());
}

std::set<uint32_t> Shard::WithoutData() const {
  std::set<uint32_t> without;
  if (job_.consistency().sync().backup() == 0) return without;
  const std::vector<uint32_t> ordinals = open_view().Contributors();
  const auto division = Divide(decided_.position(), open_view().view().training_samples(),
                               static_cast<uint32_t>(ordinals.size()), NominalSamples(job_));
  for (size_t place = 0; place < ordinals.size(); ++place) {
    if (division[place].empty()) without.insert(ordinals[place]);
  }
  return without;
}

void Shard::ChangeMembers(std::shared_ptr<const Routing> routing, absl::Time now,
                          Replies& replies) {
  const std::shared_ptr<const Routing> former = std::exchange(routing_, std::move(routing));
  if (clocked_ != nullptr) {
    views_ = {routing_};
    return ChangeClockedMembers(now, replies);
  }
  views_.push_back(routing_);
  if (!gate_.has_value() || error_.has_value()) return;
  if (!ready() || HasEnded()) {
    // Nobody has begun the open step: nothing to decide.
    OpenStep(routing_->view().view_epoch(), now);
  } else {
    Do(gate_->Change(DeparturesSince(*former)), now, replies);
  }
  AnswerEnters(replies);
}

std::vector<StepGate::Departure> Shard::DeparturesSince(const Routing& former) const {
  std::vector<StepGate::Departure> departures;
  for (const auto& [ordinal, parts] : gate_->contributors()) {
    const Contributor* const before = former.FindContributor(ordinal);
    const Contributor* const now = routing_->FindContributor(ordinal);
    if (before == nullptr || !SomebodyLeft(*before, now)) continue;
    StepGate::Departure& departure = departures.emplace_back();
    departure.contributor = ordinal;
    departure.awaited = now != nullptr && static_cast<uint32_t>(now->part_members_size()) == parts;
    departure.left_something = !Nobody(*before) && LeftSomething(ordinal, departure.awaited);
  }
  return departures;
}

bool Shard::LeftSomething(uint32_t contributor, bool awaited) const {
  // Kept apart, what it sent is in nobody's way but its successor's.
  if (table_->kept_apart() && !awaited) return false;
  // Of what it sent to other shards this one knows nothing.
  if (routing_->shards() > 1) return true;
  for (const auto& [id, slice] : table_->slices()) {
    if (slice.buffer() && !awaited) continue;
    for (const PartIdentity& part : slice.identities()) {
      if (part.first == contributor) return true;
    }
  }
  return false;
}

// A shard that skipped the view of the open step knows its contributors from the next newer view,
// or from a later one: a place that the former does not have may have been taken again since. Who
// was in none of them was fenced here throughout: nothing of it can have come.
std::vector<const Routing*> Shard::open_routings() const {
  std::vector<const Routing*> routings = {&open_view()};
  for (size_t i = 1; !opened_as_named_ && i < views_.size(); ++i) {
    routings.push_back(views_[i].get());
  }
  return routings;
}

void Shard::Enter(const EnterRequest& request, CallTime time, Replies& replies,
                  Done<EnterReply> done) {
  absl::Status status = Fence(request.header());
  const bool leads = gate_.has_value() || (clocked_ != nullptr && clocked_->gate.has_value());
  if (status.ok() && !leads) status = NotLeader();
  if (status.ok()) status = FenceContributor(request.header(), request.contributor());
  if (status.ok()) status = RoomForEnter(request.header().member());
  if (!status.ok()) return replies.Add<EnterReply>(std::move(done), status);
  ParkedEnter parked;
  parked.member = request.header().member();
  parked.header = request.header();
  parked.contributor = request.contributor();
  parked.since = time.now;
  parked.deadline = time.deadline;
  parked.done = std::move(done);
  enters_.push_back(std::move(parked));
  if (clocked_ != nullptr) return SettleClocks(time.now, replies);
  AnswerEnters(replies);
}

void Shard::AnswerEnters(Replies& replies) {
  for (auto it = enters_.begin(); it != enters_.end();) {
    // By the newest view, which may be newer than the call.
    absl::Status status = FenceMember(it->header);
    if (status.ok()) status = FenceContributor(it->header, it->contributor);
    // Until there are start values the open step is divided anew by each view.
    if (status.ok() && (!ready() || !gate_->TakesPart(it->contributor))) {
      ++it;
      continue;
    }
    if (status.ok()) {
      EnterReply reply;
      reply.set_step(version_ + 1);
      reply.set_attempt(attempt_);
      *reply.mutable_position() = decided_.position();
      reply.set_view_epoch(open_view().view().view_epoch());
      for (const uint32_t contributor : open_view().Contributors()) {
        reply.add_contributors(contributor);
      }
      if (evaluation_.has_value()) *reply.mutable_evaluation() = *evaluation_;
      replies.Add<EnterReply>(std::move(it->done), std::move(reply));
    } else {
      replies.Add<EnterReply>(std::move(it->done), status);
    }
    it = enters_.erase(it);
  }
}

}  // namespace parley
