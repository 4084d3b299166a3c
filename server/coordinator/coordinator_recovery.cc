// What becomes of a job that has lost a shard: all go back to the last whole checkpoint, or it
// ends.
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/first_cause.h"
#include "server/coordinator/view_change.h"

namespace parley {

CoordinatorCore::GoBackPoint CoordinatorCore::GoesBackTo() const {
  if (!checkpoint_.whole_folder().empty()) {
    return {checkpoint_.whole_folder(), checkpoint_.whole_step(), checkpoint_.whole_position()};
  }
  return {view_.start_from(), view_.start_version(), view_.data_position()};
}

bool CoordinatorCore::LacksCheckpoint() const {
  return options_.job.max_restarts() != 0 && GoesBackTo().folder.empty();
}

bool CoordinatorCore::MayGoBack() const {
  return InPhase({PREPARING, TRAINING, SAVING}).ok() && !GoesBackTo().folder.empty() &&
         shards_lost_ < options_.job.max_restarts();
}

void CoordinatorCore::LoseShard(const Caller& shard, FirstCause cause, absl::Time now,
                                Replies& replies) {
  const Member lost = shard.member;
  if (!MayGoBack()) {
    EndJob(std::move(cause), now);
    return;
  }
  ++shards_lost_;
  if (!shard.fenced) members_.Fence(lost.id(), cause.text());
  watchers_.Refuse(lost.id(),
                   absl::AbortedError(absl::StrCat("fenced: ", Describe(lost),
                                                   " counts as lost; join as a new incarnation")),
                   replies);
  lost_shards_[lost.ordinal()] = {lost, shard.heard_at, now};
  lost_cause_ = std::move(cause);
  if (checkpoint_.order() && !checkpoint_.reported(lost.ordinal())) {
    const std::string why = absl::StrCat("the checkpoint of step ", checkpoint_.step(),
                                         " was given up: ", Describe(lost), " was lost");
    GiveUpCheckpoint(OfCoordinator(address_, why, /*preempted=*/false, progress_.step()), now,
                     CheckpointPlan::GivenUp::kForALostShard);
  }
  last_event_ = now;
  ++revision_;
  Change();
}

void CoordinatorCore::GoBackIfShardsAreThere(absl::Time now) {
  for (auto it = lost_shards_.begin(); it != lost_shards_.end();) {
    const bool is_there = members_.Holder(SHARD, it->first) != nullptr;
    if (is_there) going_back_ = true;
    it = is_there ? lost_shards_.erase(it) : std::next(it);
  }
  // A manifest that is being written decides where to.
  if (!going_back_ || !lost_shards_.empty() || life_.ended() || checkpoint_.commits()) return;
  GoBack(now);
}

void CoordinatorCore::GoBack(absl::Time now) {
  going_back_ = false;
  lost_cause_.reset();
  Abandon("a shard was lost", CheckpointPlan::GivenUp::kForALostShard);
  const GoBackPoint to = GoesBackTo();
  checkpoint_.RollBack(to.version);
  if (progress_.step() > to.version) steps_lost_ += progress_.step() - to.version;
  ++job_epoch_;
  view_ = RolledBack(view_, members_.Present(), job_epoch_, to.folder, to.version, to.position);
  progress_.RollBack(to.version, to.position);
  evaluations_.RollBack(to.version);
  finished_.RollBack();
  members_.RollBack(to.version);
  ready_shards_.assign(ready_shards_.size(), false);
  checkpoints_asked_ = 0;
  if (preemption_) preemption_->set_after_step(to.version);
  Came(/*is_awaited=*/false, now);
  Enter(PREPARING, now);
  // Who had finished has steps to do again, and who was lost or came after that is missed.
  RefillPlaces(now);
}

}  // namespace parley
