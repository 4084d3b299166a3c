#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/parley/command.h"
#include "client/parley/describe_job.h"
#include "client/parley/plan_text.h"
#include "common/daemon/exit_code.h"
#include "common/job/job_file.h"

namespace parley {
namespace {

struct Options {
  std::string job;
  std::vector<std::string> overrides;
};

int Exit(ExitCode code, const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  return code;
}

int Plan(const Options& options) {
  SignalInbox signals;
  const auto job = LoadJob(options.job, options.overrides);
  if (!job.ok()) return Exit(kWrongUsage, std::string(job.status().message()));
  const DescribedJob described = DescribeJob(*job, signals);
  if (described.code != kFinished) return Exit(described.code, described.error);
  const auto plan = PlanText(*job, described.model);
  if (!plan.ok()) return Exit(kWrongUsage, std::string(plan.status().message()));
  const std::string text =
      absl::StrCat("# ", options.job, " with all defaults filled in\n", JobText(*job), "\n", *plan);
  std::fputs(text.c_str(), stdout);
  return std::fflush(stdout) == 0 ? kFinished : kFailed;
}

}  // namespace

Command AddPlan(CLI::App& subcommand) {
  const auto options = std::make_shared<Options>();
  subcommand.add_option("JOB", options->job, "The job file (textproto of JobConfig)")->required();
  subcommand
      .add_option("--set", options->overrides,
                  "PATH=VALUE: a field of the job, e.g. cluster.workers=4; may be repeated")
      ->allow_extra_args(false);
  return [options] { return Plan(*options); };
}

}  // namespace parley
