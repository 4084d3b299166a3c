// What becomes of a job whose shards find that the checkpoint they are to load is damaged: it goes
// on from an earlier one, or it ends and says which one there is.
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/damage_text.h"
#include "server/coordinator/view.h"

namespace parley {

void CoordinatorCore::FindPrevious(FirstCause damage, absl::Time now) {
  // Each shard tells what it has found; the first one counts.
  if (damage_ || life_.phase() != PREPARING) return;
  damage_ = std::move(damage);
  FileWork work;
  work.kind = FileWork::Kind::kFindPrevious;
  work.folder = view_.start_from();
  file_work_.push_back(std::move(work));
  last_event_ = now;
  Change();
}

void CoordinatorCore::FollowPrevious(const FileWork& work, const absl::Status& result,
                                     absl::Time now) {
  if (!damage_ || life_.ended()) return;
  FirstCause cause = *std::exchange(damage_, std::nullopt);
  Change();
  absl::Status usable = result;
  if (usable.ok()) {
    StartPoint start;
    start.folder = work.folder;
    start.manifest = work.manifest;
    usable = CheckStart(start, models_.model());
  }
  if (!usable.ok() || !options_.job.checkpoint().use_previous_if_damaged()) {
    cause.set_text(absl::StrCat(
        cause.text(), usable.ok() ? OfferOf(work.folder, work.manifest.step()) : NoOffer()));
    EndJob(std::move(cause), now);
    return;
  }
  damaged_checkpoints_.insert(view_.start_from());
  // Else it would find them whole when it comes to their steps again.
  damaged_checkpoints_.insert(work.passed_over.begin(), work.passed_over.end());
  if (damaged_checkpoints_.count(started_from_) != 0) started_from_ = work.folder;
  checkpoint_.TurnTo(work.folder, work.manifest);
  going_back_ = true;
  GoBackIfShardsAreThere(now);
}

}  // namespace parley
