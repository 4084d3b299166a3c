#ifndef PARLEY_TESTS_SIMULATION_WITNESSED_FILES_H_
#define PARLEY_TESTS_SIMULATION_WITNESSED_FILES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/memory_file_system.h"
#include "server/coordinator/job_log_record.h"

namespace parley {

// The job's files as all coordinators of a simulation use them, and a witness of their records that
// count: no number may be made durable by two generations, and none after a higher generation's.
class WitnessedFiles final : public FileSystem {
 public:
  explicit WitnessedFiles(std::function<void(std::string)> broken) : broken_(std::move(broken)) {}

  MemoryFileSystem& memory() { return files_; }
  // Called with the folder of each checkpoint that gets its manifest.
  void OnCommitted(std::function<void(const std::string& folder)> committed) {
    committed_ = std::move(committed);
  }
  // The machine that holds the files has crashed and started again.
  void Restart(uint64_t seed) {
    linked_.clear();
    files_.Restart(seed);
  }

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    return files_.Create(path);
  }
  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path) override {
    return files_.Open(path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    const absl::Status renamed = files_.Rename(from, to);
    const std::string manifest = "/manifest.json";
    if (renamed.ok() && committed_ && absl::EndsWith(to, manifest)) {
      committed_(to.substr(0, to.size() - manifest.size()));
    }
    return renamed;
  }
  absl::Status Link(const std::string& from, const std::string& to) override {
    const absl::Status linked = files_.Link(from, to);
    if (linked.ok() && absl::EndsWith(to, ".record")) linked_.push_back(to);
    return linked;
  }
  absl::Status Remove(const std::string& path) override { return files_.Remove(path); }
  absl::Status RemoveDirectory(const std::string& path) override {
    return files_.RemoveDirectory(path);
  }
  absl::Status CreateDirectories(const std::string& path) override {
    return files_.CreateDirectories(path);
  }
  absl::Status SyncDirectory(const std::string& path) override {
    const absl::Status synced = files_.SyncDirectory(path);
    if (synced.ok()) {
      for (const std::string& record : std::exchange(linked_, {})) Witness(record);
    }
    return synced;
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override {
    return files_.List(directory);
  }
  bool Exists(const std::string& path) override { return files_.Exists(path); }
  absl::StatusOr<FileInfo> Info(const std::string& path) override { return files_.Info(path); }

 private:
  void Witness(const std::string& path) {
    const auto bytes = ReadWholeFile(files_, path, kMaxRecordBytes);
    if (!bytes.ok()) return;  // a fault of the disk, not of the record
    const auto record = DecodeRecord(*bytes);
    if (!record.ok()) return broken_(absl::StrCat(path, ": ", record.status().message()));
    // One that was stopped for long may find its number free again, because old records are
    // removed. It sees the higher one before it tells anybody, and rules no more.
    if (!by_number_.empty() && record->number() < by_number_.rbegin()->first) return;
    const auto [known, is_new] = by_number_.emplace(record->number(), record->generation());
    if (!is_new && known->second != record->generation()) {
      broken_(absl::StrCat("record ", record->number(), " is of generations ", known->second,
                           " and ", record->generation()));
    }
    if (record->generation() < newest_) {
      broken_(absl::StrCat("generation ", record->generation(), " made record ", record->number(),
                           " after generation ", newest_, " had one"));
    }
    newest_ = std::max(newest_, record->generation());
  }

  const std::function<void(std::string)> broken_;
  std::function<void(const std::string&)> committed_;
  MemoryFileSystem files_;
  std::vector<std::string> linked_;         // and not synced yet
  std::map<uint64_t, uint64_t> by_number_;  // generations
  uint64_t newest_ = 0;
};

}  // namespace parley

#endif  // PARLEY_TESTS_SIMULATION_WITNESSED_FILES_H_
