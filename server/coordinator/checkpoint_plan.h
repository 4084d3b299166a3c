#ifndef PARLEY_SERVER_COORDINATOR_CHECKPOINT_PLAN_H_
#define PARLEY_SERVER_COORDINATOR_CHECKPOINT_PLAN_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/checkpoint.pb.h"
#include "proto/coordinator.pb.h"
#include "proto/coordinator_log.pb.h"

namespace parley {

// What the owner of the core does with files.
struct FileWork {
  enum class Kind {
    kCreateFolder,  // make `folder`, empty of another checkpoint
    kCommit,        // write `manifest` into it, durably, and make `latest` name it
  };
  Kind kind = Kind::kCreateFolder;
  std::string folder;  // absolute
  Manifest manifest;   // kCommit
};

// The writing of one checkpoint: folder, then every shard's file, then the manifest, which is the
// commit. Each stage is entered once and in this order. Owned by CoordinatorCore, under its lock.
class CheckpointPlan {
 public:
  enum class Stage { kNone, kFolder, kFiles, kCommit, kDone };

  // kNone -> kFolder. `manifest`: all of it but files and optimizer steps.
  FileWork Begin(const std::string& checkpoint_directory, uint32_t shards, Manifest manifest,
                 absl::Time now);
  // kFolder -> kFiles: the order goes out.
  void FolderIsThere();
  // A shard's file. INVALID_ARGUMENT for another step, a name that is not the shard's, a second,
  // different report; FAILED_PRECONDITION where none is ordered. A repeated report changes nothing,
  // after the end too.
  absl::Status Add(const Member& shard, const ReportCheckpointFileRequest& report);
  // kFiles -> kCommit, once, when all files are there.
  std::optional<FileWork> CommitIfComplete();
  // kCommit -> kDone.
  void Committed(absl::Time now);
  // kFolder or kCommit -> kNone: the coordinator's own work has failed, nobody tries again.
  void Abandon() { stage_ = Stage::kNone; }

  // For the log. Read, of a new object: returns the work that its former owner may not have done;
  // to do it twice does no harm.
  void Write(CoordinatorState& state) const;
  std::optional<FileWork> Read(const LoggedCheckpoint& logged, uint32_t shards);
  void Resume(absl::Time now) { began_ = now; }

  Stage stage() const { return stage_; }
  // While shards have to write.
  std::optional<CheckpointOrder> order() const;
  bool reported(uint32_t shard) const { return files_.count(shard) != 0; }
  // Of the last whole checkpoint; empty and 0 if there is none.
  const std::string& whole_folder() const { return whole_folder_; }
  uint64_t whole_step() const { return whole_step_; }
  absl::Duration duration() const { return duration_; }  // of the last whole one

 private:
  FileWork CommitWork() const { return {FileWork::Kind::kCommit, folder_, manifest_}; }

  Stage stage_ = Stage::kNone;
  std::string folder_;
  uint32_t shards_ = 0;
  Manifest manifest_;
  std::map<uint32_t, CheckpointFile> files_;  // by shard
  absl::Time began_;
  std::string whole_folder_;
  uint64_t whole_step_ = 0;
  absl::Duration duration_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_CHECKPOINT_PLAN_H_
