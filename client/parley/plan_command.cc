#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/parley/command.h"
#include "client/parley/pipeline_text.h"
#include "client/parley/plan_text.h"
#include "client/parley/start_text.h"
#include "common/file_system.h"
#include "server/coordinator/job_start.h"

namespace parley {
namespace {

// timeline: the file for the picture of a pipeline's step; empty: none.
int Plan(const JobArgument& argument, const std::string& timeline) {
  SignalInbox signals;
  const DescribedJob described = DescribeJob(argument, signals);
  if (described.code != kFinished) return Exit(described.code, described.error);
  const auto files = PosixFileSystem();
  const auto start = ReadStart(*files, described.job);
  if (!start.ok()) return Exit(kWrongUsage, std::string(start.status().message()));
  if (*start) {
    const absl::Status fits = CheckModelStart(**start, described.model);
    if (!fits.ok()) return Exit(kWrongUsage, std::string(fits.message()));
  }
  const auto plan = PlanText(described.job, described.model);
  if (!plan.ok()) return Exit(kWrongUsage, std::string(plan.status().message()));
  if (!timeline.empty()) {
    const absl::Status written = WriteTimeline(described.job, described.model, timeline, *files);
    if (!written.ok()) return Exit(kWrongUsage, std::string(written.message()));
  }
  const std::string text =
      absl::StrCat("# ", argument.file, " with all defaults filled in\n", JobText(described.job),
                   "\n", *start ? StartText(**start) : "", *plan);
  std::fputs(text.c_str(), stdout);
  return std::fflush(stdout) == 0 ? kFinished : kFailed;
}

}  // namespace

Command AddPlan(CLI::App& subcommand) {
  const auto argument = std::make_shared<JobArgument>();
  AddJobArgument(subcommand, *argument);
  const auto timeline = std::make_shared<std::string>();
  subcommand.add_option("--timeline", *timeline,
                        "Of a job with pipelines: draw what its stages do in a step, as foretold, "
                        "into this file (SVG)");
  return [argument, timeline] { return Plan(*argument, *timeline); };
}

}  // namespace parley
