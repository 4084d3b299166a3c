#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/parley/command.h"
#include "client/parley/plan_text.h"

namespace parley {
namespace {

int Plan(const JobArgument& argument) {
  SignalInbox signals;
  const DescribedJob described = DescribeJob(argument, signals);
  if (described.code != kFinished) return Exit(described.code, described.error);
  const auto plan = PlanText(described.job, described.model);
  if (!plan.ok()) return Exit(kWrongUsage, std::string(plan.status().message()));
  const std::string text = absl::StrCat("# ", argument.file, " with all defaults filled in\n",
                                        JobText(described.job), "\n", *plan);
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
