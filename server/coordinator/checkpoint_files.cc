#include "server/coordinator/checkpoint_files.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/latest.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/names.h"
#include "common/checkpoint/reader.h"
#include "common/checkpoint/weights_file.h"

namespace parley {
namespace {

bool IsWhole(FileSystem& files, const std::string& folder) {
  return files.Exists(absl::StrCat(folder, "/manifest.json"));
}

// Of the checkpoints in a directory, oldest first, by step: from a hundred million on names have
// more digits, and are in another order.
absl::StatusOr<std::map<uint64_t, std::string>> FoldersByStep(FileSystem& files,
                                                              const std::string& directory) {
  auto names = files.List(directory);
  if (!names.ok()) return names.status();
  std::map<uint64_t, std::string> folders;
  for (const std::string& name : *names) {
    const std::optional<uint64_t> step = StepOfFolder(name);
    if (step) folders.emplace(*step, absl::StrCat(directory, "/", name));
  }
  return folders;
}

// The manifest first, durably: what is left after a crash is no checkpoint.
absl::Status RemoveCheckpoint(FileSystem& files, const std::string& folder) {
  const std::string manifest = absl::StrCat(folder, "/manifest.json");
  if (files.Exists(manifest)) {
    if (absl::Status removed = files.Remove(manifest); !removed.ok()) return removed;
    if (absl::Status synced = files.SyncDirectory(folder); !synced.ok()) return synced;
  }
  auto names = files.List(folder);
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    // Nobody else's files.
    if (!absl::StartsWith(name, "shard-") && !absl::StartsWith(name, "manifest.json")) continue;
    const absl::Status removed = files.Remove(absl::StrCat(folder, "/", name));
    if (!removed.ok()) return removed;
  }
  return files.RemoveDirectory(folder);
}

// One of which nothing counts, though it may be whole, and `latest` name it.
absl::Status Revoke(FileSystem& files, const std::string& folder) {
  const std::string directory = std::filesystem::path(folder).parent_path().string();
  const auto named = NamedByLatest(files, directory);
  if (named.ok() && *named == folder) {
    const auto folders = FoldersByStep(files, directory);
    if (!folders.ok()) return folders.status();
    const auto other = std::find_if(folders->rbegin(), folders->rend(), [&](const auto& entry) {
      return entry.second != folder && IsWhole(files, entry.second);
    });
    const absl::Status turned = other == folders->rend() ? RemoveLatest(files, directory)
                                                         : NameInLatest(files, other->second);
    if (!turned.ok()) return turned;
  }
  return RemoveCheckpoint(files, folder);
}

// It seemed that the manifest could not be written, but it is there.
absl::Status FinishCommit(FileSystem& files, FileWork& work) {
  if (absl::Status synced = files.SyncDirectory(work.folder); !synced.ok()) return synced;
  absl::Status named = NameInLatest(files, work.folder);
  work.committed = named.ok();
  return named;
}

absl::Status Abandon(FileSystem& files, FileWork& work) {
  if (!files.Exists(work.folder)) return absl::OkStatus();
  if (work.damaged) return Revoke(files, work.folder);
  if (IsWhole(files, work.folder)) {
    // Where this one was not being committed, it is another one that was there before.
    return work.manifest.step() != 0 ? FinishCommit(files, work) : absl::OkStatus();
  }
  absl::Status first_error;
  for (const std::string& name : work.files) {
    const absl::Status removed = files.Remove(absl::StrCat(work.folder, "/", name));
    if (!absl::IsNotFound(removed)) first_error.Update(removed);
  }
  // A shard may still write into it: then it goes when it is old.
  files.RemoveDirectory(work.folder).IgnoreError();
  return first_error;
}

}  // namespace

absl::StatusOr<StartPoint> LoadStart(FileSystem& files, const std::string& start_from) {
  StartPoint start;
  const auto is_file = WeightsFile::IsMeantBy(files, start_from);
  if (!is_file.ok()) return is_file.status();
  if (*is_file) {
    const auto file = WeightsFile::Open(files, start_from);
    if (!file.ok()) return file.status();
    start.folder = start_from;
    start.weights = (*file)->weights();
    return start;
  }
  auto folder = ResolveCheckpoint(files, start_from);
  if (!folder.ok()) return folder.status();
  auto manifest = ReadManifest(files, *folder);
  if (!manifest.ok()) return manifest.status();
  start.folder = *std::move(folder);
  start.manifest = *std::move(manifest);
  return start;
}

absl::StatusOr<StartPoint> LoadPrevious(FileSystem& files, const std::string& damaged) {
  std::filesystem::path path = std::filesystem::path(damaged).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (!StepOfFolder(path.filename().string())) {
    // A folder of checkpoints. Where it is `latest` that is damaged, all others may be whole.
    auto named = ResolveCheckpoint(files, path.string());
    if (!named.ok()) named = NamedByLatest(files, path.string());
    path = named.ok() ? std::filesystem::path(*named) : path / "";
  }
  const std::string directory = path.parent_path().string();
  const std::optional<uint64_t> newest = StepOfFolder(path.filename().string());
  const auto folders = FoldersByStep(files, directory);
  if (!folders.ok()) return folders.status();
  StartPoint start;
  if (newest) start.damaged.insert(path.string());
  for (auto it = folders->rbegin(); it != folders->rend(); ++it) {
    const auto& [step, folder] = *it;
    if (newest && step >= *newest) continue;
    const auto reader = CheckpointReader::Open(files, folder);
    if (!reader.ok()) {
      // One that cannot be read now, or is of a later release, may be good: nothing takes its
      // place.
      if (absl::IsDataLoss(reader.status())) start.damaged.insert(folder);
      continue;
    }
    start.folder = folder;
    start.manifest = (*reader)->manifest();
    return start;
  }
  return absl::NotFoundError(
      absl::StrCat(directory, " has no whole checkpoint of an earlier step"));
}

std::optional<std::string> WholeAfterLatest(FileSystem& files,
                                            const std::string& checkpoint_directory) {
  std::optional<uint64_t> latest;
  const auto named = NamedByLatest(files, checkpoint_directory);
  if (named.ok()) {
    const std::string name = std::filesystem::path(*named).filename().string();
    const auto text = ReadWholeFile(files, absl::StrCat(checkpoint_directory, "/latest"));
    // One line alone: somebody has chosen that one by hand.
    if (!text.ok() || *text != FormatLatest(name)) return std::nullopt;
    latest = StepOfFolder(name);
  } else if (!absl::IsNotFound(named.status())) {
    return std::nullopt;
  }
  const auto folders = FoldersByStep(files, checkpoint_directory);
  if (!folders.ok()) return std::nullopt;
  for (auto it = folders->rbegin(); it != folders->rend(); ++it) {
    if (latest && it->first <= *latest) break;
    if (IsWhole(files, it->second)) return it->second;
  }
  return std::nullopt;
}

absl::Status CheckNoEarlierRun(FileSystem& files, const std::string& checkpoint_directory,
                               const std::optional<StartPoint>& start) {
  if (!files.Exists(checkpoint_directory)) return absl::OkStatus();
  auto names = files.List(checkpoint_directory);
  if (!names.ok()) return names.status();
  // Weights are nobody's earlier run.
  const bool goes_on = start && !start->weights;
  for (const std::string& name : *names) {
    const std::optional<uint64_t> step = StepOfFolder(name);
    if (!absl::StartsWith(name, "step-") || (goes_on && step && *step <= start->manifest.step()) ||
        !IsWhole(files, absl::StrCat(checkpoint_directory, "/", name)) ||
        (goes_on && start->damaged.count(absl::StrCat(checkpoint_directory, "/", name)) != 0)) {
      continue;
    }
    return absl::FailedPreconditionError(absl::StrCat(
        checkpoint_directory, " holds a checkpoint of an earlier run, ", name,
        goes_on ? absl::StrCat(", later than step ", start->manifest.step(),
                               " from which this job starts: start from that one, or move it away")
                : std::string(": to go on from it set checkpoint.start_from to this directory; to "
                              "begin anew choose another checkpoint.directory or --out, or move it "
                              "away")));
  }
  return absl::OkStatus();
}

absl::Status RemoveOldCheckpoints(FileSystem& files, const std::string& directory,
                                  const FileWork::Keep& keep) {
  const auto folders = FoldersByStep(files, directory);
  if (!folders.ok()) return folders.status();
  // What has no manifest, and a whole one after it, was given up; a damaged one is no better.
  std::vector<std::string> old;
  uint32_t newer = 0;
  for (auto it = folders->rbegin(); it != folders->rend(); ++it) {
    const auto& [step, folder] = *it;
    const bool whole = IsWhole(files, folder) && keep.damaged.count(folder) == 0;
    const bool stays = whole ? keep.last == 0 || newer < keep.last ||
                                   keep.in_use.count(folder) != 0 ||
                                   (keep.every_steps != 0 && step % keep.every_steps == 0)
                             : newer == 0;
    newer += whole ? 1 : 0;
    if (!stays) old.push_back(folder);
  }
  absl::Status first_error;
  for (const std::string& folder : old) first_error.Update(RemoveCheckpoint(files, folder));
  return first_error;
}

absl::Status Perform(FileSystem& files, FileWork& work) {
  if (work.kind == FileWork::Kind::kFindPrevious) {
    auto previous = LoadPrevious(files, work.folder);
    if (!previous.ok()) return previous.status();
    work.folder = std::move(previous->folder);
    work.manifest = std::move(previous->manifest);
    work.passed_over = std::move(previous->damaged);
    return absl::OkStatus();
  }
  if (work.kind == FileWork::Kind::kRemoveOld) {
    return RemoveOldCheckpoints(files, work.folder, work.keep);
  }
  if (work.kind == FileWork::Kind::kAbandon) return Abandon(files, work);
  if (work.kind == FileWork::Kind::kCommit) {
    return CommitCheckpoint(files, work.folder, work.manifest);
  }
  if (work.damaged && files.Exists(work.folder)) {
    if (absl::Status removed = RemoveCheckpoint(files, work.folder); !removed.ok()) return removed;
  }
  if (IsWhole(files, work.folder)) {
    return absl::AlreadyExistsError(absl::StrCat(work.folder, " holds a whole checkpoint already"));
  }
  if (absl::Status made = files.CreateDirectories(work.folder); !made.ok()) return made;
  // What is told of it must not be lost in a crash, and so neither must its name.
  const std::filesystem::path checkpoints = std::filesystem::path(work.folder).parent_path();
  // This user may not be able to open what lies above; then the system has to see to it.
  files.SyncDirectory(checkpoints.parent_path().string()).IgnoreError();
  return files.SyncDirectory(checkpoints.string());
}

}  // namespace parley
