#include "server/coordinator/job_log.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/seed.h"
#include "server/coordinator/job_log_record.h"

namespace parley {
namespace {

constexpr char kSuffix[] = ".record";
constexpr char kTemporarySuffix[] = ".temporary";
constexpr size_t kDigits = 20;
// How often the newest record may go away, because newer ones were made, while it is opened.
constexpr int kOpenAttempts = 10;

// 0 where the name is not that of a record.
uint64_t NumberIn(const std::string& name) {
  uint64_t number = 0;
  if (name.size() != kDigits + sizeof(kSuffix) - 1 || !absl::EndsWith(name, kSuffix) ||
      name.find_first_not_of("0123456789") != kDigits ||
      !absl::SimpleAtoi(name.substr(0, kDigits), &number) ||
      number == std::numeric_limits<uint64_t>::max()) {  // there is none after it
    return 0;
  }
  return number;
}

std::string NameOf(uint64_t number) { return absl::StrFormat("%020d%s", number, kSuffix); }

}  // namespace

JobLog::JobLog(FileSystem& files, std::string directory, std::string job)
    : files_(&files),
      directory_(std::move(directory)),
      job_(std::move(job)),
      writer_(RandomIncarnation()) {}

absl::StatusOr<JobLog> JobLog::Open(FileSystem& files, std::string directory, std::string job) {
  JobLog log(files, std::move(directory), std::move(job));
  absl::Status status;
  for (int i = 0; i < kOpenAttempts; ++i) {
    status = log.ReadNewest();
    if (!absl::IsNotFound(status)) break;
  }
  if (absl::IsNotFound(status)) {
    return absl::UnavailableError(absl::StrCat(
        "another coordinator writes records faster than this one reads them: ", status.message()));
  }
  if (!status.ok()) return status;
  return log;
}

absl::Status JobLog::ReadNewest() {
  auto numbers = Numbers();
  if (!numbers.ok()) return numbers.status();
  if (numbers->empty()) return absl::OkStatus();
  next_ = numbers->back() + 1;
  for (uint64_t number = numbers->back(); number != 0; --number) {
    if (!std::binary_search(numbers->begin(), numbers->end(), number)) {
      return absl::DataLossError(
          absl::StrCat(PathOf(number), " is missing, and all later records are unfinished"));
    }
    auto record = Read(number);
    if (record.ok()) {
      last_ = *std::move(record);
      return absl::OkStatus();
    }
    if (!absl::IsDataLoss(record.status()) || !IsUnfinished(number)) return record.status();
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> JobLog::Take(const std::string& address, const CoordinatorState& state,
                                      absl::Time now) {
  if (generation_ == 0) {
    if (auto made = files_->CreateDirectories(directory_); !made.ok()) return made;
    // The folder's own name must be as durable as what will lie in it.
    const std::string parent = std::filesystem::path(directory_).parent_path().string();
    if (auto synced = files_->SyncDirectory(parent); !synced.ok()) return synced;
    generation_ = (last_ ? last_->generation() : 0) + 1;
  }
  address_ = address;
  if (auto status = Append(state, now); !status.ok()) return status;
  return generation_;
}

absl::Status JobLog::Append(const CoordinatorState& state, absl::Time now) {
  if (generation_ == 0) {
    return absl::FailedPreconditionError("this process has not taken the rule of the job");
  }
  CoordinatorRecord record;
  record.set_format(kRecordFormat);
  record.set_job(job_);
  record.set_generation(generation_);
  record.set_address(address_);
  record.set_writer(writer_);
  record.set_written_unix_micros(absl::ToUnixMicros(now));
  *record.mutable_state() = state;
  return Write(std::move(record));
}

absl::Status JobLog::Write(CoordinatorRecord record) {
  while (lost_.ok()) {
    record.set_number(next_);
    const std::string bytes = EncodeRecord(record);
    if (bytes.size() > kMaxRecordBytes) {
      return absl::InvalidArgumentError(absl::StrCat("the coordinator's state has ", bytes.size(),
                                                     " bytes; a record may have ",
                                                     kMaxRecordBytes));
    }
    const std::string temporary = absl::StrCat(directory_, "/.", NameOf(next_), ".",
                                               absl::Hex(RandomIncarnation()), kTemporarySuffix);
    absl::Status made = CreateExclusively(*files_, PathOf(next_), temporary, bytes);
    if (absl::IsAlreadyExists(made)) {
      auto taken = Read(next_);
      // Our own, from an attempt whose outcome we were not told.
      if (taken.ok() && taken->writer() == writer_) {
        ++next_;
        continue;
      }
      if (taken.ok() || absl::IsNotFound(taken.status()) || absl::IsDataLoss(taken.status())) {
        return Lose(next_);
      }
      return taken.status();
    }
    if (!made.ok()) {
      removed_abandoned_ = false;  // it may have left its temporary file
      return made;
    }
    auto numbers = Numbers();
    if (!numbers.ok()) return numbers.status();
    // The number was free, but perhaps only because another coordinator, long past it, had removed
    // its own record of that number. The newest record is never removed: then there is a higher.
    if (numbers->empty() || numbers->back() > next_) return Lose(next_);
    last_ = std::move(record);
    ++next_;
    RemoveOld(*numbers);
    if (!removed_abandoned_) RemoveAbandoned();
    return absl::OkStatus();
  }
  return lost_;
}

absl::Status JobLog::CheckStillRules() {
  if (generation_ == 0) {
    return absl::FailedPreconditionError("this process has not taken the rule of the job");
  }
  if (!lost_.ok()) return lost_;
  auto numbers = Numbers();
  if (!numbers.ok()) return numbers.status();
  if (numbers->empty() || numbers->back() < next_) return absl::OkStatus();
  auto newest = Read(numbers->back());
  if (newest.ok() && newest->writer() == writer_) return absl::OkStatus();  // outcome not known
  if (newest.ok() || absl::IsNotFound(newest.status()) || absl::IsDataLoss(newest.status())) {
    return Lose(numbers->back());
  }
  return newest.status();
}

absl::Status JobLog::Lose(uint64_t number) {
  std::string who = "that cannot be read";
  // Its maker may have gone on: the newest tells where to find who rules now.
  if (auto numbers = Numbers(); numbers.ok() && !numbers->empty()) {
    if (auto newest = Read(numbers->back()); newest.ok()) {
      who = absl::StrCat("generation ", newest->generation(), " at ", newest->address());
    }
  }
  lost_ = absl::AbortedError(absl::StrCat("another coordinator has taken number ", number, " in ",
                                          directory_, ": ", who, "; this one, generation ",
                                          generation_, " at ", address_, ", rules no more"));
  return lost_;
}

std::string JobLog::PathOf(uint64_t number) const {
  return absl::StrCat(directory_, "/", NameOf(number));
}

absl::StatusOr<std::vector<uint64_t>> JobLog::Numbers() const {
  std::vector<uint64_t> numbers;
  auto names = files_->List(directory_);
  if (absl::IsNotFound(names.status())) return numbers;
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (const uint64_t number = NumberIn(name); number != 0) numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

absl::StatusOr<CoordinatorRecord> JobLog::Read(uint64_t number) const {
  const std::string path = PathOf(number);
  auto bytes = ReadWholeFile(*files_, path, kMaxRecordBytes);
  if (!bytes.ok()) return bytes.status();
  auto record = DecodeRecord(*bytes);
  if (absl::IsDataLoss(record.status())) {
    return absl::DataLossError(absl::StrCat(
        path, ": ", record.status().message(),
        ". Only if no coordinator of the job runs, and you "
        "accept that what this record tells is lost, move it away: the job goes on from ",
        number == 1 ? "its start" : NameOf(number - 1)));
  }
  if (!record.ok()) {
    return absl::Status(record.status().code(),
                        absl::StrCat(path, ": ", record.status().message()));
  }
  if (record->number() != number) {
    return absl::DataLossError(absl::StrCat(path, ": is record ", record->number(),
                                            " under another's name: was it copied?"));
  }
  if (record->job() != job_) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is of job '", record->job(),
                                                   "', not of '", job_, "': choose another --out"));
  }
  return record;
}

bool JobLog::IsUnfinished(uint64_t number) const {
  auto bytes = ReadWholeFile(*files_, PathOf(number), kMaxRecordBytes);
  if (!bytes.ok() || !IsTorn(*bytes)) return false;
  auto info = files_->Info(PathOf(number));
  auto names = files_->List(directory_);
  if (!info.ok() || !names.ok()) return false;
  // A maker removes its temporary name last, before it tells anybody that the record is there.
  for (const std::string& name : *names) {
    if (!absl::StartsWith(name, absl::StrCat(".", NameOf(number), "."))) continue;
    auto temporary = files_->Info(absl::StrCat(directory_, "/", name));
    if (temporary.ok() && temporary->device == info->device && temporary->inode == info->inode) {
      return true;
    }
  }
  return false;
}

void JobLog::RemoveOld(const std::vector<uint64_t>& numbers) {
  for (const uint64_t number : numbers) {
    if (number + kKept > numbers.back()) break;
    files_->Remove(PathOf(number)).IgnoreError();  // the next Append tries again
  }
}

void JobLog::RemoveAbandoned() {
  auto mine = files_->Info(PathOf(last_->number()));
  auto names = files_->List(directory_);
  if (!mine.ok() || !names.ok()) return;
  removed_abandoned_ = true;
  for (const std::string& name : *names) {
    if (!absl::StartsWith(name, ".") || !absl::EndsWith(name, kTemporarySuffix)) continue;
    const std::string path = absl::StrCat(directory_, "/", name);
    auto info = files_->Info(path);
    if (info.ok() && mine->modified - info->modified >= kAbandonedAfter) {
      files_->Remove(path).IgnoreError();
    }
  }
}

}  // namespace parley
