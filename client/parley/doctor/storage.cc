#include "client/parley/doctor/storage.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/errno_status.h"

namespace parley {

StorageKind KindOfStorage(uint64_t magic) {
  using Reach = StorageKind::Reach;
  // statfs(2) and linux/magic.h; those of cluster file systems are in their own sources.
  switch (magic) {
    case 0xEF53:
      return {"ext4", Reach::kMachine};
    case 0x58465342:
      return {"xfs", Reach::kMachine};
    case 0x9123683E:
      return {"btrfs", Reach::kMachine};
    case 0xF2F52010:
      return {"f2fs", Reach::kMachine};
    case 0x2FC12FC1:
      return {"zfs", Reach::kMachine};
    case 0x01021994:
      return {"tmpfs", Reach::kMemory};
    case 0x858458F6:
      return {"ramfs", Reach::kMemory};
    case 0x794C7630:
      return {"overlay", Reach::kContainer};
    case 0x6969:
      return {"nfs", Reach::kCluster};
    case 0x0BD00BD0:
      return {"lustre", Reach::kCluster};
    case 0x47504653:
      return {"gpfs", Reach::kCluster};
    case 0x19830326:
      return {"beegfs", Reach::kCluster};
    case 0x00C36400:
      return {"ceph", Reach::kCluster};
    case 0x517B:
    case 0xFF534D42:
    case 0xFE534D42:
      return {"smb", Reach::kCluster};
    case 0x5346414F:
      return {"afs", Reach::kCluster};
    case 0x65735546:
      return {"fuse", Reach::kUnknown};
    case 0x01021997:
      return {"9p", Reach::kUnknown};
    default:
      return {absl::StrCat("file system 0x", absl::Hex(magic)), Reach::kUnknown};
  }
}

absl::StatusOr<StorageFacts> LookAtStorage(const std::string& folder) {
  struct statfs kind {};
  struct statvfs room {};
  struct stat info {};
  if (::statfs(folder.c_str(), &kind) != 0 || ::statvfs(folder.c_str(), &room) != 0 ||
      ::stat(folder.c_str(), &info) != 0) {
    return ErrnoStatus(errno, "cannot look at the folder", folder);
  }
  StorageFacts facts;
  facts.kind = KindOfStorage(static_cast<uint32_t>(kind.f_type));
  facts.read_only = (room.f_flag & ST_RDONLY) != 0;
  facts.free_bytes = uint64_t{room.f_bavail} * room.f_frsize;
  facts.counts_files = room.f_files != 0;
  facts.free_files = room.f_favail;
  facts.longest_name = room.f_namemax;
  facts.mode = info.st_mode & 07777;
  facts.owner = info.st_uid;
  facts.user = ::geteuid();
  return facts;
}

}  // namespace parley
