#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/parley/command.h"
#include "client/parley/plan_text.h"
#include "client/parley/start_text.h"
#include "common/file_system.h"
#include "server/coordinator/job_start.h"

namespace parley {
namespace {

int Plan(const JobArgument& argument) {
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
  return [argument] { return Plan(*argument); };
}

}  // namespace parley
