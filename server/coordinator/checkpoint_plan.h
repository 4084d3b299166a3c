#ifndef PARLEY_SERVER_COORDINATOR_CHECKPOINT_PLAN_H_
#define PARLEY_SERVER_COORDINATOR_CHECKPOINT_PLAN_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

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
    kAbandon,       // remove `files` from it, and itself if nothing else is in it: it was given up;
                    // where `manifest` turns out to be in it, make `latest` name it instead
    kRemoveOld,     // remove from `folder`, which holds checkpoints, what `keep` does not keep
    kFindPrevious,  // `folder` is damaged: find the newest one of an earlier step beside it
  };
  // Of the checkpoints in a folder.
  struct Keep {
    uint32_t last = 0;              // the newest so many whole ones; 0: all
    uint64_t every_steps = 0;       // of the older ones those of a step that is a multiple; 0: none
    std::set<std::string> in_use;   // folders of those that stay
    std::set<std::string> damaged;  // folders of those that do not count as whole
  };
  Kind kind = Kind::kCreateFolder;
  std::string folder;       // absolute; after kFindPrevious the one that was found
  uint64_t checkpoint = 0;  // kCreateFolder, kCommit: CheckpointPlan::number(); else 0
  absl::Time began;         // kCommit, or kAbandon of such a one
  bool damaged = false;     // kCreateFolder, kAbandon: what lies in it is no loss
  // kCommit; kAbandon of one that was being committed; after kFindPrevious of the one that was
  // found
  Manifest manifest;
  bool committed = false;          // after kAbandon: it is whole
  std::vector<std::string> files;  // kAbandon: names
  Keep keep;                       // kRemoveOld
  // After kFindPrevious: the folders of damaged ones that the found one stands in the place of.
  std::set<std::string> passed_over;
};

// The writing of one checkpoint after the other: folder, then every shard's file, then the
// manifest, which is the commit. Each stage is entered once and in this order; from any of them the
// checkpoint can be given up. Owned by CoordinatorCore, under its lock.
class CheckpointPlan {
 public:
  enum class Stage { kNone, kFolder, kFiles, kCommit };
  // A lost shard says nothing of disks.
  enum class GivenUp { kForAFault, kForALostShard };

  // kNone -> kFolder. `manifest`: all of it but files and optimizer steps.
  FileWork Begin(const std::string& checkpoint_directory, uint32_t shards, Manifest manifest,
                 absl::Time now);
  // kFolder -> kFiles: the order goes out.
  void FolderIsThere();
  // A shard's file. INVALID_ARGUMENT for another step, a name that is not the shard's, a second,
  // different report; FAILED_PRECONDITION where none is ordered. A repeated report changes nothing.
  absl::Status Add(const Member& shard, const ReportCheckpointFileRequest& report);
  // kFiles -> kCommit, once, when all files are there.
  std::optional<FileWork> CommitIfComplete();
  // kCommit -> kNone: it is whole.
  void Committed(absl::Time now);
  // So is one that was given up, after that. If it is being written anew, that is over.
  void CommittedLate(const FileWork& commit, absl::Time now);
  // -> kNone: somebody could not do his part; nobody tries again. What there is of it goes, so that
  // a full disk is less full the next time; nothing where it was not busy.
  std::optional<FileWork> GiveUp(std::string why, GivenUp as = GivenUp::kForAFault);

  // The job goes back to this version, while none is being written: later ones come again.
  void RollBack(uint64_t version) { ended_ = version; }
  // The last whole one is damaged; this one, of an earlier step, is in its place.
  void TurnTo(const std::string& folder, const Manifest& manifest);

  // For the log. Read, of a new object: returns the work that its former owner may not have done;
  // to do it twice does no harm.
  void Write(CoordinatorState& state) const;
  std::optional<FileWork> Read(const LoggedCheckpoint& logged, uint32_t shards);
  void Resume(absl::Time now) { began_ = now; }

  Stage stage() const { return stage_; }
  bool busy() const { return stage_ != Stage::kNone; }
  bool commits() const { return stage_ == Stage::kCommit; }
  // Which one of this process; from 1.
  uint64_t number() const { return number_; }
  uint64_t step() const { return manifest_.step(); }     // while busy
  const std::string& folder() const { return folder_; }  // while busy
  absl::Time began() const { return began_; }            // of the last one
  // While shards have to write.
  std::optional<CheckpointOrder> order() const;
  bool reported(uint32_t shard) const { return files_.count(shard) != 0; }
  // The newest version of which a checkpoint is whole or given up.
  uint64_t ended() const { return ended_; }
  // Of the last whole checkpoint; empty and 0 if there is none.
  const std::string& whole_folder() const { return whole_folder_; }
  const DataPosition& whole_position() const { return whole_position_; }
  uint64_t whole_step() const { return whole_step_; }
  uint64_t written() const { return written_; }          // whole ones since this process began
  absl::Duration duration() const { return duration_; }  // of the last whole one
  uint64_t failed() const { return failed_; }            // given up
  uint64_t interrupted() const { return interrupted_; }  // of those, for a lost shard
  uint64_t faults() const { return failed_ - interrupted_; }
  const std::string& error() const { return error_; }  // of the last of those

 private:
  FileWork FolderWork() const;
  FileWork CommitWork() const;
  void End();

  Stage stage_ = Stage::kNone;
  uint64_t number_ = 0;
  std::string folder_;
  uint32_t shards_ = 0;
  Manifest manifest_;
  std::map<uint32_t, CheckpointFile> files_;  // by shard
  absl::Time began_ = absl::InfinitePast();
  uint64_t ended_ = 0;
  std::string whole_folder_;
  uint64_t whole_step_ = 0;
  DataPosition whole_position_;
  uint64_t written_ = 0;
  absl::Duration duration_;
  uint64_t failed_ = 0;
  uint64_t interrupted_ = 0;
  std::string error_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_CHECKPOINT_PLAN_H_
