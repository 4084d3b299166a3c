#include "server/coordinator/job_start.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "server/coordinator/checkpoint_files.h"
#include "server/coordinator/damage_text.h"
#include "server/coordinator/job_directory.h"
#include "server/coordinator/job_log.h"

namespace parley {
namespace {

// The job as it starts from the newest checkpoint of its own directory, if there is one.
JobConfig FromOwnCheckpoint(FileSystem& files, const JobConfig& job, const std::string& directory) {
  JobConfig own = job;
  const std::optional<std::string> unnamed = WholeAfterLatest(files, directory);
  if (!unnamed && absl::IsNotFound(ResolveCheckpoint(files, directory).status())) return own;
  own.mutable_checkpoint()->set_start_from(unnamed.value_or(directory));
  own.mutable_checkpoint()->set_ignore_unexpected(false);  // was for the weights of a first run
  return own;
}

}  // namespace

absl::StatusOr<std::optional<StartPoint>> ReadStart(FileSystem& files, const JobConfig& job) {
  const Checkpoint& checkpoint = job.checkpoint();
  if (checkpoint.start_from().empty()) return std::nullopt;
  auto start = LoadStart(files, checkpoint.start_from());
  if (absl::IsDataLoss(start.status())) {
    auto previous = LoadPrevious(files, checkpoint.start_from());
    if (checkpoint.use_previous_if_damaged() && previous.ok()) return *std::move(previous);
    return absl::InvalidArgumentError(absl::StrCat(
        "checkpoint.start_from: ", start.status().message(),
        previous.ok() ? OfferOf(previous->folder, previous->manifest.step()) : NoOffer()));
  }
  if (!start.ok()) {
    // Another code than that of a coordinator that answers, whatever the reason.
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint.start_from: ", start.status().message()));
  }
  if (start->weights) {
    start->weights->ignore_unexpected = checkpoint.ignore_unexpected();
  } else if (checkpoint.ignore_unexpected()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "checkpoint.ignore_unexpected: is for a file of weights, but checkpoint.start_from, ",
        start->folder, ", is a checkpoint, all of which a job goes on with: leave it out"));
  }
  return *std::move(start);
}

absl::StatusOr<JobStart> CheckJobStart(FileSystem& files, const JobConfig& job,
                                       const std::string& directory, const StartMode& mode) {
  JobStart start;
  start.checkpoint_directory =
      (std::filesystem::path(directory) / job.checkpoint().directory()).lexically_normal().string();
  if (auto status = JobDirectory::CheckName(start.checkpoint_directory); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("checkpoint.directory: ", status.message()));
  }
  if (mode.has_started) return start;
  auto from = ReadStart(
      files, mode.resume ? FromOwnCheckpoint(files, job, start.checkpoint_directory) : job);
  if (!from.ok()) return from.status();
  start.from = *std::move(from);
  const Checkpoint& checkpoint = job.checkpoint();
  const bool writes = checkpoint.at_end() || checkpoint.every_steps() != 0 ||
                      !checkpoint.every().empty() || job.max_restarts() != 0;
  if (writes && !mode.goes_on) {
    const absl::Status clear = CheckNoEarlierRun(files, start.checkpoint_directory, start.from);
    if (!clear.ok()) return clear;
  }
  return start;
}

absl::StatusOr<JobStart> CheckNewRun(FileSystem& files, const JobConfig& job,
                                     const std::string& directory, const NewRunMode& mode,
                                     const AskForCoordinator& ask) {
  if (files.Exists(directory)) {
    const JobDirectory here(files, directory);
    const auto check = [&](const std::string& address) {
      if (address.empty() || !ask(address).ok()) return absl::OkStatus();
      return absl::AlreadyExistsError(
          absl::StrCat("a coordinator runs already for this directory: it answers at ", address,
                       "; stop it first, or choose another --out"));
    };
    // Before the log, which may be that of another job.
    absl::Status nobody = check(here.ReadAddress().value_or(""));
    if (!nobody.ok()) return nobody;
    auto log = JobLog::Open(files, here.log_directory(), job.name());
    if (!log.ok()) return log.status();
    nobody = check(log->last() ? log->last()->address() : "");
    if (!nobody.ok()) return nobody;
    if (!mode.anew && log->last() && !log->last()->state().over()) {
      return absl::FailedPreconditionError(absl::StrCat(
          directory, " holds the log of a job that has not ended (",
          Phase_Name(log->last()->state().phase()), ", generation ", log->last()->generation(),
          "), whose coordinator does not answer. Where its shards and workers still run, start "
          "that one again: parley-coordinator --job=FILE --out=",
          directory,
          ". To begin anew choose another --out, or, when they have all ended, add --anew"));
    }
  }
  return CheckJobStart(files, job, directory, {.goes_on = false, .resume = mode.resume});
}

absl::Status EndEarlierRun(FileSystem& files, const JobConfig& job, const std::string& directory,
                           absl::Time now) {
  JobDirectory here(files, directory);
  auto log = JobLog::Open(files, here.log_directory(), job.name());
  if (!log.ok()) return log.status();
  if (!log->last() || log->last()->state().over()) return absl::OkStatus();
  const std::string address = log->last()->address();
  CoordinatorState state = log->last()->state();
  state.set_over(true);
  const auto taken = log->Take(address, state, now);
  if (!taken.ok()) return taken.status();
  // Nobody is to look for a coordinator there.
  here.RemoveAddress(address);
  return absl::OkStatus();
}

}  // namespace parley
