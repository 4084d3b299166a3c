#include "client/parley/doctor/directory_probe.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/parley/units.h"
#include "common/seed.h"

namespace parley {
namespace {

constexpr char kDirectory[] = "job directory";
constexpr char kWriting[] = "write and sync";
constexpr char kRenaming[] = "atomic rename";
constexpr char kCreation[] = "exclusive creation";

constexpr size_t kBytes = 1 << 20;
// The coordinator syncs a record of its log before it tells anybody of a change.
constexpr absl::Duration kSlowSync = absl::Seconds(1);
constexpr int kRenames = 20;
constexpr int kRivals = 4;
constexpr size_t kSmallBytes = 8192;

// Two contents that no mixture equals.
std::string Content(char letter) { return std::string(kSmallBytes, letter); }

std::string Milliseconds(absl::Duration duration) {
  return absl::StrFormat("%.1f ms", absl::ToDoubleMilliseconds(duration));
}

Finding CannotWrite(const char* what, const absl::Status& status, const std::string& directory) {
  const std::string found(status.message());
  if (absl::IsResourceExhausted(status)) {
    return Failure(
        what, found,
        absl::StrCat("free the disk of ", directory, " (df -h, df -i, quota), or another --out"));
  }
  // Of a disk that is read-only the code says the same as of one that is closed to this user.
  if (absl::IsPermissionDenied(status) && !absl::StrContains(found, std::strerror(EROFS))) {
    return Failure(what, found,
                   absl::StrCat("chown or chmod u+rwx ", directory,
                                " for the user that the job runs as, or another --out"));
  }
  return Failure(what, found,
                 "an --out whose path is of folders, on a file system that is mounted to be "
                 "written (findmnt -T DIR)");
}

}  // namespace

bool DirectoryProbe::Begin(Findings& findings) {
  // What is not there yet, from the directory upwards.
  for (std::filesystem::path path = directory_; !files_.Exists(path.string());
       path = path.parent_path()) {
    if (path == path.parent_path()) break;
    made_.insert(made_.begin(), path.string());
  }
  const bool is_new = !made_.empty();
  folder_ = absl::StrCat(directory_, "/.doctor-", absl::Hex(RandomIncarnation()));
  if (absl::Status status = files_.CreateDirectories(folder_); !status.ok()) {
    findings.push_back(CannotWrite(kDirectory, status, directory_));
    return false;
  }
  findings.push_back(
      Fine(kDirectory, absl::StrCat(directory_, is_new ? " can be made" : " is there")));
  return true;
}

void DirectoryProbe::TryWriting(Findings& findings) {
  const std::string path = At("bytes");
  const std::vector<std::byte> bytes(kBytes, std::byte{'d'});
  auto file = files_.Create(path);
  absl::Status status = file.status();
  const absl::Time began = now_();
  absl::Time before_sync = began;
  if (status.ok()) {
    status.Update((*file)->Append(bytes));
    before_sync = now_();
    status.Update((*file)->Sync());
  }
  const absl::Time ended = now_();
  if (status.ok()) status.Update((*file)->Close());
  status.Update(files_.SyncDirectory(folder_));
  if (!status.ok()) {
    findings.push_back(CannotWrite(kWriting, status, directory_));
    return;
  }
  if (const auto info = files_.Info(path); info.ok()) {
    // It was modified at some time in between, by the clock of whoever holds it.
    const absl::Time in_time = std::clamp(info->modified, began, ended);
    skew_ = ClockSkew{info->modified - in_time, ended - began};
  }
  const std::string found =
      absl::StrCat("1 MiB written; the sync took ", Milliseconds(ended - before_sync));
  if (ended - before_sync > kSlowSync) {
    findings.push_back(Warning(
        kWriting, found,
        "a job syncs its log at each change of its members: is the file server or the disk busy "
        "(iostat -x, nfsiostat)? Else an --out on a faster one"));
    return;
  }
  findings.push_back(Fine(kWriting, found));
}

// Somebody reads the file again and again meanwhile, as members read the coordinator's address.
void DirectoryProbe::TryRenaming(Findings& findings) {
  const std::string path = At("renamed");
  absl::Status status = WriteFileAtomically(files_, path, Content('a'));
  std::atomic<bool> over = false;
  std::string wrong;  // the reader's, until it is joined
  int reads = 0;
  std::thread reader;
  if (status.ok()) {
    reader = std::thread([&] {
      do {
        const auto read = ReadWholeFile(files_, path);
        ++reads;
        if (!read.ok()) {
          // NFS: another client's old file may be gone while it is read.
          wrong = absl::StrCat("a reader meanwhile got: ", read.status().message());
        } else if (*read != Content('a') && *read != Content('b')) {
          wrong = absl::StrCat("a reader meanwhile got ", read->size(), " bytes of a mixture");
        }
      } while (!over && wrong.empty());
    });
  }
  for (int i = 0; i < kRenames && status.ok(); ++i) {
    status = WriteFileAtomically(files_, path, Content(i % 2 == 0 ? 'b' : 'a'));
  }
  over = true;
  if (reader.joinable()) reader.join();
  if (!status.ok()) {
    findings.push_back(CannotWrite(kRenaming, status, directory_));
    return;
  }
  const auto read = ReadWholeFile(files_, path);
  if (wrong.empty() && (!read.ok() || *read != Content(kRenames % 2 == 0 ? 'a' : 'b'))) {
    wrong = "after the last rename the former content is read";
  }
  if (!wrong.empty()) {
    findings.push_back(Failure(
        kRenaming, wrong,
        "this file system does not replace a file at once: an --out on another one (a local "
        "disk, NFS 3 or later, Lustre)"));
    return;
  }
  findings.push_back(Fine(kRenaming, absl::StrCat(kRenames, " times over a file that was read ",
                                                  reads, " times meanwhile, always whole")));
}

// As coordinators do who want to rule at the same time: without locks, by link.
void DirectoryProbe::TryExclusiveCreation(Findings& findings) {
  const std::string path = At("exclusive");
  std::vector<absl::Status> outcomes(kRivals);
  std::vector<std::thread> rivals;
  rivals.reserve(kRivals);
  for (int i = 0; i < kRivals; ++i) {
    rivals.emplace_back([&, i] {
      outcomes[i] =
          CreateExclusively(files_, path, absl::StrCat(path, ".", i), absl::StrCat("rival ", i));
    });
  }
  for (std::thread& rival : rivals) rival.join();
  int winners = 0;
  for (const absl::Status& outcome : outcomes) {
    if (outcome.ok()) ++winners;
    if (outcome.ok() || absl::IsAlreadyExists(outcome)) continue;
    findings.push_back(Failure(
        kCreation, std::string(outcome.message()),
        "this file system makes no second name for a file (link), by which a job knows that it has "
        "one coordinator: an --out on another one (a local disk, NFS, Lustre); some FUSE and SMB "
        "mounts cannot"));
    return;
  }
  if (winners != 1) {
    findings.push_back(Failure(
        kCreation, absl::StrCat(winners, " of ", kRivals, " who created one file all did"),
        "two coordinators could rule one job on this file system: an --out on another one, or "
        "mount it without caching of names (NFS: lookupcache=none)"));
    return;
  }
  findings.push_back(
      Fine(kCreation, absl::StrCat("one of ", kRivals, " who created one file at once did")));
}

void DirectoryProbe::End() {
  if (const auto names = files_.List(folder_); names.ok()) {
    for (const std::string& name : *names) files_.Remove(At(name)).IgnoreError();
  }
  files_.RemoveDirectory(folder_).IgnoreError();
  for (auto path = made_.rbegin(); path != made_.rend(); ++path) {
    files_.RemoveDirectory(*path).IgnoreError();
  }
}

}  // namespace parley
