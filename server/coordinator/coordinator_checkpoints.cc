// When checkpoints are written, and what becomes of them.
#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/checkpoint/names.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/first_cause.h"

namespace parley {

void CoordinatorCore::SaveOrEnd(absl::Time now) {
  if (life_.phase() != SAVING || checkpoint_.busy()) return;
  const bool is_whole = checkpoint_.whole_step() == progress_.step() && progress_.step() != 0 &&
                        !checkpoint_.whole_folder().empty();
  // A job that has ended, and is resumed: the last checkpoint is the one that it starts from.
  const bool started_there = progress_.step() != 0 && progress_.step() == view_.start_version() &&
                             view_.start_from() == absl::StrCat(options_.checkpoint_directory, "/",
                                                                StepFolderName(progress_.step()));
  if (!options_.job.checkpoint().at_end() || is_whole || started_there) {
    Enter(FINISHED, now);
    return;
  }
  if (going_back_ || !lost_shards_.empty()) return;
  BeginCheckpoint(progress_.step(), progress_.position(), now);
}

void CoordinatorCore::BeginCheckpoint(uint64_t version, const DataPosition& position,
                                      absl::Time now) {
  Manifest manifest;
  manifest.set_job_name(options_.job.name());
  manifest.set_step(version);
  manifest.set_job_epoch(job_epoch_);
  manifest.set_view_epoch(view_.view_epoch());
  *manifest.mutable_tensors() = view_.tensors();
  // A job of another cut may go on from it.
  for (TensorSpec& tensor : *manifest.mutable_tensors()) tensor.clear_stages();
  *manifest.mutable_data_position() = position;
  manifest.set_seed(options_.job.seed());
  *manifest.mutable_job() = options_.job;
  FileWork folder = checkpoint_.Begin(options_.checkpoint_directory, members_.places(SHARD),
                                      std::move(manifest), now);
  folder.damaged = damaged_checkpoints_.count(folder.folder) != 0;
  file_work_.push_back(std::move(folder));
  Change();
}

void CoordinatorCore::FollowMark(const CheckpointMark& mark, absl::Time now) {
  // One that is due while another is being written is told again with the next verdict.
  if (mark.version() <= checkpoint_.ended() || checkpoint_.busy() ||
      mark.version() > progress_.step() || !InPhase({PREPARING, TRAINING}).ok() ||
      !lost_shards_.empty()) {
    return;
  }
  BeginCheckpoint(mark.version(), mark.position(), now);
}

void CoordinatorCore::FileWorkDone(const FileWork& work, const absl::Status& result, absl::Time now,
                                   Replies& replies) {
  // What could not be removed now is old the next time too.
  if (work.kind == FileWork::Kind::kRemoveOld) return;
  if (work.kind == FileWork::Kind::kAbandon) {
    // It may count by now: where the disk took long, and said so after the work was queued.
    if (work.committed && work.folder != checkpoint_.whole_folder()) CommittedLate(work, now);
    TellWatchers(replies);
    return;
  }
  if (work.kind == FileWork::Kind::kFindPrevious) {
    FollowPrevious(work, result, now);
    TellWatchers(replies);
    return;
  }
  // Of one that was given up meanwhile: it says nothing of the one after it.
  if (!checkpoint_.busy() || work.checkpoint != checkpoint_.number()) {
    if (work.kind == FileWork::Kind::kCommit && result.ok()) CommittedLate(work, now);
    TellWatchers(replies);
    return;
  }
  if (!result.ok()) {
    const bool commits = work.kind == FileWork::Kind::kCommit;
    const std::string why = absl::StrCat("the checkpoint ", work.folder, " could not be ",
                                         commits ? "committed: " : "begun: ", result.message());
    GiveUpCheckpoint(OfCoordinator(address_, why, /*preempted=*/false, progress_.step()), now);
    GoBackIfShardsAreThere(now);
    TellWatchers(replies);
    return;
  }
  last_event_ = checkpoint_moved_at_ = now;
  Change();
  ++revision_;  // the order goes out, or how it has ended
  if (work.kind == FileWork::Kind::kCreateFolder) {
    checkpoint_.FolderIsThere();
  } else {
    checkpoint_.Committed(now);
    RemoveOldOnes(work.folder);
    // Where the last one is whole, a shard that was lost meanwhile is needed no more.
    SaveOrEnd(now);
    EndPreempted(now);
    GoBackIfShardsAreThere(now);
  }
  TellWatchers(replies);
}

void CoordinatorCore::RemoveOldOnes(const std::string& newest) {
  damaged_checkpoints_.erase(newest);  // it is a new one
  const Checkpoint& checkpoint = options_.job.checkpoint();
  FileWork remove;
  remove.kind = FileWork::Kind::kRemoveOld;
  remove.folder = options_.checkpoint_directory;
  remove.keep = {checkpoint.keep_last(),
                 checkpoint.keep_every_steps(),
                 {view_.start_from(), started_from_, newest},
                 damaged_checkpoints_};
  file_work_.push_back(std::move(remove));
}

void CoordinatorCore::CommittedLate(const FileWork& commit, absl::Time now) {
  if (life_.ended()) return;
  if (commit.manifest.job_epoch() != job_epoch_) {
    // The job has gone back to an earlier one, and comes to this step again. Before all else: the
    // folder may be about to be made.
    FileWork remove;
    remove.kind = FileWork::Kind::kAbandon;
    remove.folder = commit.folder;
    remove.damaged = true;
    file_work_.insert(file_work_.begin(), std::move(remove));
    return;
  }
  // Files are touched in order, so that nothing has begun of one that came after it.
  if (checkpoint_.busy() && checkpoint_.folder() == commit.folder) {
    DropFileWork(checkpoint_.number());
  }
  checkpoint_.CommittedLate(commit, now);
  Change();
  ++revision_;
  RemoveOldOnes(commit.folder);
  SaveOrEnd(now);
  EndPreempted(now);
  GoBackIfShardsAreThere(now);
}

bool CoordinatorCore::DropFileWork(uint64_t checkpoint) {
  bool folder_too = false;
  for (auto it = file_work_.begin(); it != file_work_.end();) {
    const bool is_of_it = it->checkpoint == checkpoint;
    folder_too |= is_of_it && it->kind == FileWork::Kind::kCreateFolder;
    it = is_of_it ? file_work_.erase(it) : std::next(it);
  }
  return folder_too;
}

void CoordinatorCore::Abandon(std::string why, CheckpointPlan::GivenUp as) {
  auto work = checkpoint_.GiveUp(std::move(why), as);
  if (!work) return;
  // Where a file hangs, the work of each that is given up would pile up behind it.
  if (!DropFileWork(checkpoint_.number())) file_work_.push_back(*std::move(work));
}

void CoordinatorCore::GiveUpCheckpoint(FirstCause cause, absl::Time now,
                                       CheckpointPlan::GivenUp as) {
  const bool was_last = life_.phase() == SAVING && lost_shards_.empty() && !going_back_ &&
                        options_.job.checkpoint().at_end() && checkpoint_.busy() &&
                        checkpoint_.step() == progress_.step();
  Abandon(cause.text(), as);
  Change();
  ++revision_;
  if (was_last) {
    EndJob(std::move(cause), now);
  } else {
    SaveOrEnd(now);
    EndPreempted(now);
  }
}

absl::StatusOr<ReportCheckpointFileReply> CoordinatorCore::ReportCheckpointFile(
    const ReportCheckpointFileRequest& request, absl::Time now, Replies& replies) {
  auto caller = Admit(request.header(), Scope::kJobState, {SHARD}, now);
  if (!caller.ok()) return caller.status();
  const Member& member = (*caller)->member;
  if (absl::Status status = InPhase({PREPARING, TRAINING, SAVING, FINISHED}); !status.ok()) {
    return status;
  }
  if (!request.error().empty()) {
    if (checkpoint_.order() && request.step() == checkpoint_.step() &&
        !checkpoint_.reported(member.ordinal())) {
      const std::string why = absl::StrCat("the checkpoint of step ", request.step(),
                                           " could not be written: ", request.error());
      GiveUpCheckpoint(ReportedBy(member, why, /*preempted=*/false, progress_.step()), now);
      TellWatchers(replies);
    }
    return ReportCheckpointFileReply();
  }
  // Of one that was given up meanwhile.
  if (!checkpoint_.busy() && request.step() <= checkpoint_.ended()) {
    return ReportCheckpointFileReply();
  }
  const bool is_new = !checkpoint_.reported(member.ordinal());
  if (absl::Status status = checkpoint_.Add(member, request); !status.ok()) return status;
  if (is_new) Change();
  last_event_ = checkpoint_moved_at_ = now;
  if (auto work = checkpoint_.CommitIfComplete()) {
    file_work_.push_back(*std::move(work));
    ++revision_;  // the order is off
    TellWatchers(replies);
  }
  return ReportCheckpointFileReply();
}

absl::StatusOr<AskForCheckpointReply> CoordinatorCore::AskForCheckpoint(
    const AskForCheckpointRequest& request, absl::Time now, Replies& replies) {
  if (generation_ == 0) return absl::UnavailableError("the coordinator is starting; try again");
  if (absl::Status status = OfThisJob(request.job()); !status.ok()) return status;
  if (absl::Status status = InPhase({TRAINING}); !status.ok()) return status;
  AskNow(now);
  AskForCheckpointReply reply;
  reply.set_step(progress_.step());
  reply.set_failed(checkpoint_.failed());
  TellWatchers(replies);
  return reply;
}

void CoordinatorCore::AskNow(absl::Time now) {
  ++checkpoints_asked_;
  Change();
  ++revision_;
  asked_at_ = now;
}

void CoordinatorCore::AskIfDue(absl::Time now) {
  if (life_.phase() != TRAINING || checkpoint_.busy()) return;
  absl::Duration period = options_.checkpoint_period;
  // The first one has failed, and there is still to be something to go back to.
  if (LacksCheckpoint() && checkpoint_.failed() != 0) {
    period = period == absl::ZeroDuration() ? options_.stall_timeout
                                            : std::min(period, options_.stall_timeout);
  }
  if (period == absl::ZeroDuration()) return;
  const absl::Time last = std::max({asked_at_, checkpoint_.began(), training_since_});
  if (now - last >= period) AskNow(now);
}

void CoordinatorCore::EndSlowCheckpoint(absl::Time now) {
  if (life_.phase() != TRAINING || !checkpoint_.busy()) return;
  // It decides where to the job goes back. EndWait and EndDeadlock see to it.
  if (checkpoint_.commits() && (going_back_ || !lost_shards_.empty())) return;
  absl::Time moved = std::max({checkpoint_moved_at_, checkpoint_.began(), resumed_at_});
  if (!checkpoint_.order()) {
    if (now - moved < options_.stall_timeout) return;
    const std::string why = absl::StrCat(
        "gave up the checkpoint of step ", checkpoint_.step(), ": since ", FormatUtc(moved),
        " the coordinator waits for a disk to ",
        checkpoint_.commits() ? "write the manifest of " : "make ", checkpoint_.folder());
    GiveUpCheckpoint(OfCoordinator(address_, why, /*preempted=*/false, progress_.step()), now);
    return;
  }
  std::vector<std::string> who;
  for (uint32_t shard = 0; shard < members_.places(SHARD); ++shard) {
    const Caller* holder = members_.Holder(SHARD, shard);
    if (checkpoint_.reported(shard) || holder == nullptr) continue;
    moved = std::max(moved, holder->disk_moved_at);
    who.push_back(Describe(holder->member));
  }
  if (now - moved < options_.stall_timeout) return;
  const std::string why = absl::StrCat(
      "gave up the checkpoint of step ", checkpoint_.step(), ": since ", FormatUtc(moved),
      " these have not written their files: ", absl::StrJoin(who, ", "));
  GiveUpCheckpoint(OfCoordinator(address_, why, /*preempted=*/false, progress_.step()), now);
}

}  // namespace parley
