#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/grpc_connector.h"
#include "client/parley/command.h"
#include "client/parley/final_table.h"
#include "client/parley/job_run.h"
#include "client/parley/programs.h"
#include "client/parley/start_text.h"
#include "client/parley/status_query.h"
#include "common/checkpoint/manifest.h"
#include "common/file_system.h"
#include "common/job/own_program.h"
#include "common/security/credential_file.h"
#include "common/security/protection.h"
#include "server/coordinator/job_directory.h"
#include "server/coordinator/job_log.h"
#include "server/coordinator/job_start.h"
#include "server/coordinator/targets.h"

namespace parley {
namespace {

struct Options {
  JobArgument job;
  std::string out;
  std::string worker;  // a program in place of parley-worker; empty: none
  bool resume = false;
  bool anew = false;
  bool one_sigterm = false;
};

// The program that --worker names, by its whole path.
absl::StatusOr<std::string> FindOwnProgram(const std::string& worker) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(worker, error).lexically_normal();
  if (error || !std::filesystem::is_regular_file(path, error) || access(path.c_str(), X_OK) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--worker=", worker, ": is not there, or no program that can be started"));
  }
  return path.string();
}

// own_worker: empty for parley-worker.
absl::StatusOr<JobRun::Programs> FindPrograms(const JobConfig& job, std::string own_worker) {
  JobRun::Programs programs;
  programs.worker = std::move(own_worker);
  std::vector<std::pair<const char*, std::string*>> wanted = {
      {"parley-coordinator", &programs.coordinator}, {"parley-shard", &programs.shard}};
  if (programs.worker.empty()) wanted.emplace_back("parley-worker", &programs.worker);
  if (job.cluster().stages() != 0) wanted.emplace_back("parley-stage", &programs.stage);
  for (const auto& [name, path] : wanted) {
    auto found = SiblingProgram(name);
    if (!found.ok()) return found.status();
    *path = *std::move(found);
  }
  return programs;
}

std::string OutDirectory(const Options& options, const JobConfig& job) {
  if (!options.out.empty()) return options.out;
  return absl::StrCat("runs/", job.name(), "-",
                      absl::FormatTime("%Y%m%d-%H%M%S", absl::Now(), absl::LocalTimeZone()));
}

// Whether the job may start in the directory, as its coordinator will decide (AlreadyExists where
// another one runs there): asked here first, since logs and job.textproto are written before there
// is a coordinator.
absl::StatusOr<JobStart> CheckDirectory(FileSystem& files, Connector& connector,
                                        const JobConfig& job, const std::string& out,
                                        const NewRunMode& mode) {
  return CheckNewRun(files, job, out, mode, [&](const std::string& address) {
    // One that is there may take its time on a busy machine; where none is, the connection is
    // refused.
    return QueryStatus(connector, files, address, absl::Seconds(10)).status();
  });
}

// As the coordinator will have them: all listen on this machine alone.
absl::StatusOr<SharedCredentials> CredentialsIn(FileSystem& files, const JobConfig& job,
                                                const std::string& out) {
  const std::string path = absl::StrCat(out, "/", kCredentialFile);
  const Protection protection = ProtectionFor(job.tls(), {});
  if (protection == Protection::kOpen) {
    auto there = ReadCredentials(path);
    return absl::IsNotFound(there.status()) ? SharedCredentials() : there;
  }
  if (auto made = files.CreateDirectories(out); !made.ok()) return made;
  return ReadOrMakeCredentials(path, protection == Protection::kTls);
}

absl::Status WriteJob(FileSystem& files, const std::string& out, const JobArgument& argument,
                      const JobConfig& job) {
  if (auto made = files.CreateDirectories(out); !made.ok()) return made;
  return WriteFileAtomically(files, absl::StrCat(out, "/job.textproto"),
                             absl::StrCat("# Written by parley run from ", argument.file,
                                          ": all defaults are filled in.\n", JobText(job)));
}

// After processes of the job were killed, of which none is left: the directory says that its run is
// over, where the coordinator had no time for that, and Prometheus follows it no more. But the
// targets of a job that has failed stay, so that its processes are missed. Not where another one
// answers: somebody has started it by hand, and it records the end itself.
void RecordEnd(FileSystem& files, Connector& connector, const JobConfig& job,
               const std::string& out, ProgressDisplay& display) {
  const std::string address = absl::StrCat("file:", out, "/coordinator.address");
  if (QueryStatus(connector, files, address, absl::Seconds(2)).ok()) return;
  JobDirectory directory(files, out);
  const auto log = JobLog::Open(files, directory.log_directory(), job.name());
  const CoordinatorState* const state = log.ok() && log->last() ? &log->last()->state() : nullptr;
  const bool is_over = state != nullptr && state->over();
  absl::Status over = is_over ? absl::OkStatus() : EndEarlierRun(files, job, out, absl::Now());
  const bool has_failed =
      state != nullptr && state->phase() == FAILED && !state->cause().preempted();
  if (over.ok() && !has_failed) {
    over = directory.WriteTargets(TargetsJson(job.name(), directory.name(), "", {}));
  }
  if (over.ok()) return;
  display.Say(absl::StrCat(
      "all processes are gone, but ", out,
      " could not be told so (the next run there needs --anew): ", std::string(over.message())));
}

// Of the last whole checkpoint; empty if there is none.
std::string CheckpointFolder(FileSystem& files, const std::string& folder, const JobConfig& job,
                             const GetStatusReply& status) {
  if (!status.checkpoint_directory().empty()) return status.checkpoint_directory();
  const auto latest = ResolveCheckpoint(files, folder);
  return job.checkpoint().at_end() && latest.ok() ? *latest : "";
}

// After a job that has not finished.
void SayHowToGoOn(ProgressDisplay& display, const std::string& out, const std::string& own_worker,
                  const GetStatusReply& last) {
  if (last.checkpoint_directory().empty()) return;
  display.Say(
      absl::StrCat("step ", last.checkpoint_step(), " is saved; to go on from it: parley run ", out,
                   "/job.textproto --set checkpoint.start_from=", last.checkpoint_directory(),
                   own_worker.empty() ? "" : " --worker=", own_worker));
}

std::string StagesText(const JobConfig& job) {
  const uint32_t stages = job.cluster().stages();
  return stages == 0 ? "" : absl::StrCat(", stages: ", stages, " for each");
}

int Run(const Options& options) {
  SignalInbox signals;  // before any other thread
  const DescribedJob described = DescribeJob(options.job, signals, {.runs_here = true});
  if (described.code != kFinished) return Exit(described.code, described.error);
  const JobConfig& job = described.job;
  std::string own_worker;
  if (!options.worker.empty()) {
    auto found = FindOwnProgram(options.worker);
    if (!found.ok()) return Exit(kWrongUsage, std::string(found.status().message()));
    own_worker = *std::move(found);
  } else if (described.own_program) {
    return Exit(kWrongUsage, absl::StrCat(options.job.file,
                                          ": model or data is own {}, so that a program of "
                                          "your own trains this job: give it with --worker=PROGRAM "
                                          "(docs/api.md, Your own program)"));
  }
  const auto programs = FindPrograms(job, own_worker);
  if (!programs.ok()) return Exit(kFailed, std::string(programs.status().message()));

  std::error_code error;
  const std::string out =
      std::filesystem::absolute(OutDirectory(options, job), error).lexically_normal().string();
  if (error) return Exit(kWrongUsage, absl::StrCat("--out: ", error.message()));
  const auto files = PosixFileSystem();
  const auto credentials = CredentialsIn(*files, job, out);
  if (!credentials.ok()) return Exit(kWrongUsage, std::string(credentials.status().message()));
  const auto connector = MakeGrpcConnector(/*direct=*/false, *credentials);
  const auto start = CheckDirectory(*files, *connector, job, out,
                                    {.resume = options.resume, .anew = options.anew});
  if (!start.ok()) {
    return Exit(absl::IsAlreadyExists(start.status()) ? kFailed : kWrongUsage,
                std::string(start.status().message()));
  }
  if (start->from && !described.own_program) {
    const absl::Status fits = CheckModelStart(*start->from, described.model);
    if (!fits.ok()) return Exit(kWrongUsage, std::string(fits.message()));
  }
  if (auto status = WriteJob(*files, out, options.job, job); !status.ok()) {
    return Exit(kWrongUsage, std::string(status.message()));
  }
  if (options.anew) {
    const absl::Status over = EndEarlierRun(*files, job, out, absl::Now());
    if (!over.ok()) return Exit(kFailed, std::string(over.message()));
  }

  ProgressDisplay display(stderr, isatty(STDERR_FILENO) != 0);
  display.Say(absl::StrCat("job ", job.name(), ": coordinator, shards: ", job.cluster().shards(),
                           ", workers: ", job.cluster().workers(), StagesText(job), "; all in ",
                           out));
  JobRun run(job, *programs,
             {.out = out, .resume = options.resume, .one_sigterm = options.one_sigterm}, *files,
             *connector, signals, display);
  const JobRun::Result result = run.Run();
  if (result.killed) RecordEnd(*files, *connector, job, out, display);
  if (result.outcome.code != kFinished) {
    SayHowToGoOn(display, out, own_worker, result.status);
    return Exit(result.outcome.code, result.outcome.last_line);
  }
  return Print(FinalTable(
      result.status, std::max(result.status.wanted_workers(), uint32_t{1}), NeedsOwnProgram(job),
      {.job = out + "/job.textproto",
       .targets = out + "/targets.json",
       .logs = out + "/*.log",
       .checkpoint = CheckpointFolder(*files, start->checkpoint_directory, job, result.status)}));
}

}  // namespace

Command AddRun(CLI::App& subcommand) {
  const auto options = std::make_shared<Options>();
  AddJobArgument(subcommand, options->job);
  subcommand.add_option("--out", options->out,
                        "Directory for logs, targets, address file and checkpoints; default "
                        "runs/NAME-DATE-TIME");
  subcommand.add_option(
      "--worker", options->worker,
      "A program of your own that is started as each worker, with parley-worker's "
      "arguments and in its place: of jobs with model { own {} } or data { own {} }");
  subcommand.add_flag("--resume", options->resume,
                      "Where --out has a whole checkpoint of an earlier run, go on from the newest "
                      "one in place of checkpoint.start_from");
  subcommand.add_flag("--anew", options->anew,
                      "Begin even where --out has the log of a run that has not ended: none of its "
                      "processes is left");
  subcommand.add_flag("--one_sigterm", options->one_sigterm,
                      "Ignore further SIGTERMs after the first one, where whoever sends them means "
                      "no haste by that: Slurm does not");
  return [options] { return Run(*options); };
}

}  // namespace parley
