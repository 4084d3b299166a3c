#include "server/coordinator/checkpoint_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/names.h"
#include "server/coordinator/first_cause.h"

namespace parley {
namespace {

LoggedCheckpoint::Stage StageInLog(CheckpointPlan::Stage stage) {
  switch (stage) {
    case CheckpointPlan::Stage::kFolder:
      return LoggedCheckpoint::FOLDER;
    case CheckpointPlan::Stage::kFiles:
      return LoggedCheckpoint::FILES;
    case CheckpointPlan::Stage::kCommit:
      return LoggedCheckpoint::COMMIT;
    default:
      return LoggedCheckpoint::STAGE_UNSPECIFIED;
  }
}

}  // namespace

FileWork CheckpointPlan::FolderWork() const {
  FileWork work;
  work.kind = FileWork::Kind::kCreateFolder;
  work.folder = folder_;
  work.checkpoint = number_;
  return work;
}

FileWork CheckpointPlan::CommitWork() const {
  FileWork work;
  work.kind = FileWork::Kind::kCommit;
  work.folder = folder_;
  work.checkpoint = number_;
  work.began = began_;
  work.manifest = manifest_;
  return work;
}

FileWork CheckpointPlan::Begin(const std::string& checkpoint_directory, uint32_t shards,
                               Manifest manifest, absl::Time now) {
  stage_ = Stage::kFolder;
  ++number_;
  shards_ = shards;
  manifest_ = std::move(manifest);
  folder_ = absl::StrCat(checkpoint_directory, "/", StepFolderName(manifest_.step()));
  files_.clear();
  began_ = now;
  return FolderWork();
}

void CheckpointPlan::TurnTo(const std::string& folder, const Manifest& manifest) {
  whole_folder_ = folder;
  whole_step_ = manifest.step();
  whole_position_ = manifest.data_position();
}

void CheckpointPlan::FolderIsThere() {
  if (stage_ == Stage::kFolder) stage_ = Stage::kFiles;
}

absl::Status CheckpointPlan::Add(const Member& shard, const ReportCheckpointFileRequest& report) {
  const std::string who = absl::StrCat(Describe(shard), ", file of a checkpoint: ");
  if (!busy() || stage_ == Stage::kFolder) {
    return absl::FailedPreconditionError(absl::StrCat(who, "none is ordered"));
  }
  if (report.step() != manifest_.step()) {
    return absl::InvalidArgumentError(absl::StrCat(
        who, "of step ", report.step(), " where one of step ", manifest_.step(), " is ordered"));
  }
  const std::string name = ShardFileName(shard.ordinal(), manifest_.job_epoch());
  if (report.file().name() != name || report.file().shard() != shard.ordinal()) {
    return absl::InvalidArgumentError(
        absl::StrCat(who, "'", report.file().name(), "' should be '", name, "'"));
  }
  const auto [known, added] = files_.emplace(shard.ordinal(), report.file());
  if (!added) {
    if (known->second.SerializeAsString() == report.file().SerializeAsString()) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat(who, "reported before, as another file"));
  }
  for (const auto& [tensor, steps] : report.optimizer_steps()) {
    (*manifest_.mutable_optimizer_steps())[tensor] = steps;
  }
  return absl::OkStatus();
}

std::optional<FileWork> CheckpointPlan::CommitIfComplete() {
  if (stage_ != Stage::kFiles || files_.size() != shards_) return std::nullopt;
  stage_ = Stage::kCommit;
  for (const auto& [shard, file] : files_) *manifest_.add_files() = file;
  return CommitWork();
}

void CheckpointPlan::End() {
  stage_ = Stage::kNone;
  ended_ = std::max<uint64_t>(ended_, manifest_.step());
}

void CheckpointPlan::Committed(absl::Time now) {
  if (stage_ != Stage::kCommit) return;
  End();
  whole_folder_ = folder_;
  whole_step_ = manifest_.step();
  whole_position_ = manifest_.data_position();
  duration_ = now - began_;
  ++written_;
}

void CheckpointPlan::CommittedLate(const FileWork& commit, absl::Time now) {
  if (busy() && folder_ == commit.folder) End();
  TurnTo(commit.folder, commit.manifest);
  // Of one that an earlier coordinator has begun it is not known when.
  duration_ = now - (commit.began == absl::InfinitePast() ? began_ : commit.began);
  ++written_;
}

std::optional<FileWork> CheckpointPlan::GiveUp(std::string why, GivenUp as) {
  if (!busy()) return std::nullopt;
  FileWork work;
  work.kind = FileWork::Kind::kAbandon;
  work.folder = folder_;
  for (uint32_t shard = 0; shard < shards_; ++shard) {
    work.files.push_back(ShardFileName(shard, manifest_.job_epoch()));
  }
  if (commits()) {
    work.manifest = manifest_;
    work.began = began_;
  }
  End();
  ++failed_;
  if (as == GivenUp::kForALostShard) ++interrupted_;
  error_ = std::move(why);
  return work;
}

void CheckpointPlan::Write(CoordinatorState& state) const {
  if (!busy() && ended_ == 0) return;
  LoggedCheckpoint& logged = *state.mutable_checkpoint();
  if (busy()) {
    logged.set_stage(StageInLog(stage_));
    logged.set_folder(folder_);
    *logged.mutable_manifest() = manifest_;
    for (const auto& [shard, file] : files_) *logged.add_files() = file;
  }
  logged.set_whole_folder(whole_folder_);
  logged.set_whole_step(whole_step_);
  *logged.mutable_whole_position() = whole_position_;
  logged.set_ended(ended_);
  logged.set_failed(failed_);
  logged.set_interrupted(interrupted_);
  logged.set_error(error_);
}

std::optional<FileWork> CheckpointPlan::Read(const LoggedCheckpoint& logged, uint32_t shards) {
  ++number_;
  shards_ = shards;
  folder_ = logged.folder();
  manifest_ = logged.manifest();
  for (const CheckpointFile& file : logged.files()) files_[file.shard()] = file;
  whole_folder_ = logged.whole_folder();
  whole_step_ = logged.whole_step();
  whole_position_ = logged.whole_position();
  ended_ = logged.ended();
  failed_ = logged.failed();
  interrupted_ = std::min<uint64_t>(logged.interrupted(), failed_);
  error_ = logged.error();
  switch (logged.stage()) {
    case LoggedCheckpoint::FOLDER:
      stage_ = Stage::kFolder;
      return FolderWork();
    case LoggedCheckpoint::FILES:
      stage_ = Stage::kFiles;
      break;
    case LoggedCheckpoint::COMMIT:
      stage_ = Stage::kCommit;
      return CommitWork();
    default:
      break;
  }
  return std::nullopt;
}

std::optional<CheckpointOrder> CheckpointPlan::order() const {
  if (stage_ != Stage::kFiles) return std::nullopt;
  CheckpointOrder order;
  order.set_step(manifest_.step());
  order.set_directory(folder_);
  order.set_job_epoch(manifest_.job_epoch());
  return order;
}

}  // namespace parley
