#ifndef PARLEY_CLIENT_PARLEY_DOCTOR_STORAGE_H_
#define PARLEY_CLIENT_PARLEY_DOCTOR_STORAGE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace parley {

// The kind of a file system, as far as it matters for a job.
struct StorageKind {
  enum class Reach {
    kMachine,    // a disk of this machine
    kMemory,     // its memory: gone when it starts again
    kContainer,  // a container's own layer: gone with it
    kCluster,    // other machines see it
    kUnknown,
  };
  std::string name;  // "ext4"
  Reach reach = Reach::kUnknown;
};

// By the number that statfs(2) tells.
StorageKind KindOfStorage(uint64_t magic);

// What the system says of a folder and the file system that it is on.
struct StorageFacts {
  StorageKind kind;
  bool read_only = false;
  uint64_t free_bytes = 0;  // for this user
  uint64_t free_files = 0;  // that can still be made; 0 with `counts_files` false: not counted
  bool counts_files = false;
  uint64_t longest_name = 0;  // bytes
  uint32_t mode = 0;          // the folder's permissions
  uint32_t owner = 0;         // the folder's user
  uint32_t user = 0;          // this process's
};

// The codes of FileSystem (common/file_system.h).
absl::StatusOr<StorageFacts> LookAtStorage(const std::string& folder);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_DOCTOR_STORAGE_H_
