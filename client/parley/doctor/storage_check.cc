#include "client/parley/doctor/storage_check.h"

#include <climits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/parley/units.h"

namespace parley {
namespace {

constexpr char kKind[] = "file system";
constexpr char kSpace[] = "free space";
constexpr char kMode[] = "directory's mode";
constexpr char kNames[] = "names' length";

// What a job writes beside its checkpoints: its log's records, the logs of its roles.
constexpr uint64_t kLogs = uint64_t{16} << 20;
constexpr uint64_t kFewFiles = 1000;
// Of the longest that parley makes: a checkpoint's file, with what it is called while it is
// written.
constexpr uint64_t kLongestName = 96;
// "/checkpoints/step-00000123/" and such a name.
constexpr uint64_t kLongestTail = 192;

Finding CheckKind(const StorageFacts& facts, const std::string& directory, bool all_here) {
  using Reach = StorageKind::Reach;
  const std::string found = absl::StrCat(facts.kind.name, " holds ", directory);
  switch (facts.kind.reach) {
    case Reach::kMemory:
      return Warning(kKind,
                     absl::StrCat(found,
                                  ": this machine's memory, gone when it starts again, and "
                                  "not seen by others"),
                     "an --out on a disk; for a job on several machines on a file system that all "
                     "of them see");
    case Reach::kContainer:
      return Warning(kKind, absl::StrCat(found, ": a container's own layer, gone with it"),
                     "an --out in a folder of the machine or of the cluster that is mounted into "
                     "the container");
    case Reach::kMachine:
      if (all_here) break;
      return Warning(kKind, absl::StrCat(found, ": other machines do not see it"),
                     "an --out on a file system that all machines of the job see (NFS, Lustre), or "
                     "give members --coordinator=HOST:PORT and be content that checkpoints lie on "
                     "the machines of the shards");
    case Reach::kCluster:
    case Reach::kUnknown:
      break;
  }
  return Fine(kKind, found);
}

Finding CheckMode(const StorageFacts& facts, const std::string& directory) {
  const std::string found = absl::StrFormat("%04o, of user %d", facts.mode, facts.owner);
  constexpr uint32_t kOthersWrite = 0002;
  constexpr uint32_t kSticky = 01000;
  if ((facts.mode & kOthersWrite) != 0 && (facts.mode & kSticky) == 0) {
    return Failure(kMode,
                   absl::StrCat(found,
                                ": every user of the machine can put an address file or a "
                                "checkpoint of their own there"),
                   absl::StrCat("chmod o-w ", directory, ", or another --out"));
  }
  if ((facts.mode & kOthersWrite) != 0) {
    return Warning(kMode, absl::StrCat(found, ": every user can write there"),
                   absl::StrCat("a folder of its own for the job: --out=", directory, "/NAME"));
  }
  if (facts.owner != facts.user) {
    return Warning(kMode, absl::StrCat(found, "; you are user ", facts.user),
                   "start all processes of the job as the user whose the folder is: local "
                   "connections and checkpoints are for one user");
  }
  return Fine(kMode, found);
}

Finding CheckNames(const StorageFacts& facts, const std::string& directory) {
  const std::string found =
      absl::StrCat("names of ", facts.longest_name, " bytes; the directory's path has ",
                   directory.size(), " of ", PATH_MAX);
  if (facts.longest_name < kLongestName) {
    return Failure(kNames, found,
                   absl::StrCat("names of ", kLongestName,
                                " bytes are needed: an --out on another file system"));
  }
  if (directory.size() + kLongestTail >= PATH_MAX) {
    return Failure(kNames, found,
                   absl::StrCat("an --out whose path is shorter: what lies in it adds up to ",
                                kLongestTail, " bytes"));
  }
  return Fine(kNames, found);
}

}  // namespace

Finding CheckSpace(const StorageFacts& facts, const std::string& directory, const JobNeeds& needs) {
  const uint64_t least = kLogs + needs.checkpoint;
  const uint64_t all = kLogs + needs.checkpoint * needs.checkpoints;
  const std::string has = absl::StrCat(BytesText(facts.free_bytes), " free");
  const std::string asks =
      needs.checkpoint == 0
          ? absl::StrCat("the job writes logs of some ", BytesText(kLogs))
          : absl::StrCat("a checkpoint takes ", BytesText(needs.checkpoint), ", and ",
                         needs.checkpoints, " lie there at once: ", BytesText(all), " with logs");
  const std::string found = absl::StrCat(has, "; ", asks);
  if (facts.free_bytes < least) {
    return Failure(
        kSpace, found,
        absl::StrCat("free ", BytesText(least - facts.free_bytes), " on the disk of ", directory,
                     " at least (df -h), or another --out, or another disk "
                     "by checkpoint.directory"));
  }
  if (facts.free_bytes < all) {
    return Warning(kSpace, found,
                   "keep fewer checkpoints (--set checkpoint.keep_last=N), or free the disk, or "
                   "another --out");
  }
  if (facts.counts_files && facts.free_files < kFewFiles) {
    return Warning(kSpace,
                   absl::StrCat(found, "; but only ", facts.free_files, " files can be made"),
                   "the disk has no room for more names (df -i): remove files, or another --out");
  }
  return Fine(kSpace, found);
}

Findings CheckStorage(const StorageFacts& facts, const std::string& directory,
                      const JobNeeds& needs) {
  return {CheckKind(facts, directory, needs.all_here), CheckMode(facts, directory),
          CheckNames(facts, directory)};
}

}  // namespace parley
