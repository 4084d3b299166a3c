#ifndef PARLEY_COMMON_MEMORY_FILE_SYSTEM_H_
#define PARLEY_COMMON_MEMORY_FILE_SYSTEM_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/file_system.h"

namespace parley {

// A file system in memory, for tests alone, that forgets in a crash what no sync has made durable:
// bytes of a file that was not synced (all, some, or zeros in their place) and changes of names in
// a folder that was not synced (each by itself). Every operation counts and can be made to go
// wrong. Thread-safe.
class MemoryFileSystem final : public FileSystem {
 public:
  enum class Fault {
    kFails,      // UNAVAILABLE, without effect
    kLostReply,  // UNAVAILABLE, but it has been done
    kRepeated,   // done twice, as an NFS client does that got no reply; the second result is told
    kCrash,      // UNAVAILABLE, without effect, as everything after it until Restart
  };

  MemoryFileSystem();

  // The operation of this number, from 1, goes wrong.
  void SetFault(uint64_t operation, Fault fault);
  uint64_t operations() const;  // so far

  // The machine starts again after a crash. `seed` decides what of the unsynced is still there.
  void Restart(uint64_t seed);

  // Called before each operation on a path, with its name (Create, Link, ...), without a lock: a
  // test lets others go first there.
  void BeforeEach(std::function<void(const std::string& operation)> hook);

  void SetNow(absl::Time now);  // files are modified then

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Link(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override;
  absl::Status RemoveDirectory(const std::string& path) override;
  absl::Status CreateDirectories(const std::string& path) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override;
  bool Exists(const std::string& path) override;
  absl::StatusOr<FileInfo> Info(const std::string& path) override;

 private:
  class Writer;
  class Reader;

  // A file or a folder.
  struct Node {
    uint64_t inode = 0;
    bool folder = false;
    std::string content;
    std::string synced;
    absl::Time modified;
  };
  using Names = std::map<std::string, std::shared_ptr<Node>>;  // by path
  // A change of names in `folder` that is not durable yet.
  struct Change {
    std::string folder;
    std::function<void(Names&)> apply;
  };

  void CallHook(const std::string& operation);
  // Runs the operation, once, twice or not at all.
  absl::Status Perform(const std::function<absl::Status()>& operation);
  void ChangeNames(const std::string& folder, std::function<void(Names&)> apply)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckFolderOf(const std::string& path) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<std::shared_ptr<Node>> Find(const std::string& path) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable absl::Mutex mu_;
  Names names_ ABSL_GUARDED_BY(mu_);
  Names durable_ ABSL_GUARDED_BY(mu_);
  std::vector<Change> changes_ ABSL_GUARDED_BY(mu_);  // from durable_ to names_
  std::map<uint64_t, Fault> faults_ ABSL_GUARDED_BY(mu_);
  std::function<void(const std::string&)> hook_ ABSL_GUARDED_BY(mu_);
  absl::Time now_ ABSL_GUARDED_BY(mu_) = absl::FromUnixSeconds(1'000'000'000);
  uint64_t operations_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t restarts_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t last_inode_ ABSL_GUARDED_BY(mu_) = 0;
  bool crashed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace parley

#endif  // PARLEY_COMMON_MEMORY_FILE_SYSTEM_H_
