#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/grpc_connector.h"
#include "client/parley/command.h"
#include "client/parley/final_table.h"
#include "client/parley/job_run.h"
#include "client/parley/programs.h"
#include "client/parley/status_query.h"
#include "common/file_system.h"

namespace parley {
namespace {

struct Options {
  JobArgument job;
  std::string out;
};

absl::StatusOr<JobRun::Programs> FindPrograms() {
  JobRun::Programs programs;
  for (const auto& [name, path] :
       {std::pair("parley-coordinator", &programs.coordinator),
        std::pair("parley-shard", &programs.shard), std::pair("parley-worker", &programs.worker)}) {
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

// Makes the job's directory with the job as it runs. FailedPrecondition where another run has it.
absl::Status PrepareDirectory(FileSystem& files, Connector& connector, const std::string& out,
                              const Options& options, const JobConfig& job) {
  const std::string address_file = absl::StrCat(out, "/coordinator.address");
  if (files.Exists(address_file)) {
    const auto other =
        QueryStatus(connector, files, absl::StrCat("file:", address_file), absl::Seconds(2));
    if (other.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("--out=", out, " belongs to the job '", other->job(),
                       "' that runs now: its coordinator answers at the address in ", address_file,
                       "; give another --out, or wait for that job's end"));
    }
  }
  if (auto made = files.CreateDirectories(out); !made.ok()) return made;
  return WriteFileAtomically(files, absl::StrCat(out, "/job.textproto"),
                             absl::StrCat("# Written by parley run from ", options.job.file,
                                          ": all defaults are filled in.\n", JobText(job)));
}

// Of the last whole checkpoint; empty if there is none.
std::string CheckpointFolder(FileSystem& files, const std::string& out, const JobConfig& job,
                             const GetStatusReply& status) {
  if (!status.checkpoint_directory().empty()) return status.checkpoint_directory();
  const std::string folder =
      (std::filesystem::path(out) / job.checkpoint().directory()).lexically_normal().string();
  const auto latest = ReadWholeFile(files, folder + "/latest", 4096);
  if (!job.checkpoint().at_end() || !latest.ok()) return "";
  return absl::StrCat(folder, "/", std::string(absl::StripAsciiWhitespace(*latest)));
}

int Run(const Options& options) {
  SignalInbox signals;  // before any other thread
  const DescribedJob described = DescribeJob(options.job, signals);
  if (described.code != kFinished) return Exit(described.code, described.error);
  const JobConfig& job = described.job;
  const auto programs = FindPrograms();
  if (!programs.ok()) return Exit(kFailed, std::string(programs.status().message()));

  std::error_code error;
  const std::string out =
      std::filesystem::absolute(OutDirectory(options, job), error).lexically_normal().string();
  if (error) return Exit(kWrongUsage, absl::StrCat("--out: ", error.message()));
  const auto files = PosixFileSystem();
  const auto connector = MakeGrpcConnector();
  if (auto status = PrepareDirectory(*files, *connector, out, options, job); !status.ok()) {
    return Exit(absl::IsFailedPrecondition(status) ? kFailed : kWrongUsage,
                std::string(status.message()));
  }

  ProgressDisplay display(stderr, isatty(STDERR_FILENO) != 0);
  display.Say(absl::StrCat("job ", job.name(), ": coordinator, shards: ", job.cluster().shards(),
                           ", workers: ", job.cluster().workers(), "; all in ", out));
  JobRun run(job, *programs, out, *files, *connector, signals, display);
  const JobRun::Result result = run.Run();
  if (result.outcome.code != kFinished) {
    return Exit(result.outcome.code, result.outcome.last_line);
  }
  const std::string table =
      FinalTable(result.status, job.cluster().workers(),
                 {.job = out + "/job.textproto",
                  .targets = out + "/targets.json",
                  .logs = out + "/*.log",
                  .checkpoint = CheckpointFolder(*files, out, job, result.status)});
  std::fputs(table.c_str(), stdout);
  return std::fflush(stdout) == 0 ? kFinished : kFailed;
}

}  // namespace

Command AddRun(CLI::App& subcommand) {
  const auto options = std::make_shared<Options>();
  AddJobArgument(subcommand, options->job);
  subcommand.add_option("--out", options->out,
                        "Directory for logs, targets, address file and checkpoints; default "
                        "runs/NAME-DATE-TIME");
  return [options] { return Run(*options); };
}

}  // namespace parley
