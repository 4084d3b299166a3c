#include "client/parley/describe_job.h"

#include <google/protobuf/text_format.h>
#include <signal.h>

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/parley/child_process.h"
#include "client/parley/memory_file.h"
#include "client/parley/programs.h"
#include "common/clock/steady_now.h"
#include "common/daemon/signals.h"
#include "common/job/job_file.h"
#include "common/job/optimizer_settings.h"
#include "common/job/own_program.h"

namespace parley {
namespace {

ExitCode ToExitCode(const ChildExit& exit) {
  return exit.signal == 0 && exit.code == kWrongUsage ? kWrongUsage : kFailed;
}

struct Description {
  ExitCode code = kFinished;
  std::string error;
  ModelDescription model;
};

Description DescribeModel(const JobConfig& job, SignalInbox& signals,
                          const DescribeOptions& options) {
  const auto worker = SiblingProgram("parley-worker");
  if (!worker.ok()) return {kFailed, std::string(worker.status().message()), {}};
  MemoryFile file("job");
  MemoryFile out("out");
  MemoryFile err("err");
  if (!file.valid() || !out.valid() || !err.valid() || !file.Write(JobText(job))) {
    return {kFailed, "no memory for the job file", {}};
  }
  std::vector<std::string> command = {*worker, absl::StrCat("--job=/proc/self/fd/", file.fd()),
                                      "--describe", absl::StrCat("--profile=", options.profile)};
  if (options.runs_here) command.push_back("--check_device");
  auto child = ChildProcess::Start(command, {.out = out.fd(), .err = err.fd(), .kept = file.fd()});
  if (!child.ok()) return {kFailed, std::string(child.status().message()), {}};

  // Each layer is measured a few times, however long that takes.
  const absl::Duration limit = StallTimeout(job) + 2 * absl::Seconds(options.profile);
  const absl::Time deadline = SteadyNow() + limit;
  Description described;
  while (!child->TryWait()) {
    const int signal = signals.Wait(absl::Milliseconds(100));
    if (signal == 0 && SteadyNow() < deadline) continue;
    if (described.code == kFinished) {
      if (signal != 0) {
        described.code = signal == SIGINT ? kFailed : kPreempted;
        described.error = absl::StrCat("interrupted by ", SignalName(signal));
      } else {
        described.code = kFailed;
        described.error = absl::StrCat("parley-worker --describe has not ended within ",
                                       absl::FormatDuration(limit),
                                       " (stall_timeout): is the place of the data slow?");
      }
    }
    child->Signal(SIGKILL);
  }
  if (described.code != kFinished) return described;

  const ChildExit exit = *child->TryWait();
  if (!exit.clean()) {
    described.code = ToExitCode(exit);
    described.error = std::string(absl::StripAsciiWhitespace(err.Read()));
    if (described.error.empty() || exit.signal != 0) {
      absl::StrAppend(&described.error, described.error.empty() ? "" : "\n",
                      "parley-worker --describe ", Describe(exit));
    }
    return described;
  }
  auto model = ParseModelDescription(out.Read());
  if (!model.ok()) return {kFailed, std::string(model.status().message()), {}};
  described.model = *std::move(model);
  return described;
}

}  // namespace

std::string JobText(const JobConfig& job) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(job, &text);
  return text;
}

DescribedJob DescribeJob(const JobArgument& argument, SignalInbox& signals,
                         const DescribeOptions& options) {
  auto job = LoadJob(argument.file, argument.overrides);
  if (!job.ok()) return {kWrongUsage, std::string(job.status().message())};
  if (NeedsOwnProgram(*job)) return {.job = *std::move(job), .own_program = true};
  Description description = DescribeModel(*job, signals, options);
  if (description.code == kFinished) {
    if (absl::Status status = CheckOverrides(*job, description.model.tensors); !status.ok()) {
      description = {kWrongUsage, std::string(status.message()), {}};
    }
  }
  // What the worker was given has no name that the user knows.
  if (description.code == kWrongUsage) {
    description.error = absl::StrCat(argument.file, ": ", description.error);
  }
  return {.code = description.code,
          .error = std::move(description.error),
          .job = *std::move(job),
          .model = std::move(description.model)};
}

}  // namespace parley
