#include <cstdint>
#include <memory>
#include <optional>
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

struct PlanOptions {
  std::string timeline;          // the file for the picture of a pipeline's step; empty: none
  double profile = 0;            // seconds for which a pipeline's layers are measured
  std::optional<double> hop_ms;  // between stages; in place of what is measured
  uint64_t stage_memory = 0;     // of activations; 0: not limited
};

int Plan(const JobArgument& argument, const PlanOptions& options) {
  SignalInbox signals;
  DescribedJob described = DescribeJob(argument, signals, {.profile = options.profile});
  if (options.profile > 0 && described.code == kFinished && described.job.cluster().stages() == 0) {
    return Exit(kWrongUsage,
                "--profile: measures the layers of a pipeline, and the job has none "
                "(cluster.stages is 0)");
  }
  if (described.code != kFinished) return Exit(described.code, described.error);
  if (options.hop_ms.has_value()) described.model.hop = {0, 1e-3 * *options.hop_ms};
  described.model.stage_memory = options.stage_memory;
  const auto files = PosixFileSystem();
  const auto start = ReadStart(*files, described.job);
  if (!start.ok()) return Exit(kWrongUsage, std::string(start.status().message()));
  if (*start && !described.own_program) {
    const absl::Status fits = CheckModelStart(**start, described.model);
    if (!fits.ok()) return Exit(kWrongUsage, std::string(fits.message()));
  }
  const absl::StatusOr<std::string> plan =
      described.own_program ? absl::StatusOr<std::string>(OwnProgramPlanText(described.job))
                            : PlanText(described.job, described.model);
  if (!plan.ok()) return Exit(kWrongUsage, std::string(plan.status().message()));
  if (!options.timeline.empty()) {
    const absl::Status written =
        WriteTimeline(described.job, described.model, options.timeline, *files);
    if (!written.ok()) return Exit(kWrongUsage, std::string(written.message()));
  }
  const std::string text =
      absl::StrCat("# ", argument.file, " with all defaults filled in\n", JobText(described.job),
                   "\n", *start ? StartText(**start) : "", *plan);
  return Print(text);
}

}  // namespace

Command AddPlan(CLI::App& subcommand) {
  const auto argument = std::make_shared<JobArgument>();
  AddJobArgument(subcommand, *argument);
  const auto options = std::make_shared<PlanOptions>();
  subcommand
      .add_option("--profile", options->profile,
                  "Of a job with pipelines: measure the model's layers for so many seconds first, "
                  "and say which cut balances them")
      ->check(CLI::Range(0.0, 3600.0));
  CLI::Option* profile = subcommand.get_option("--profile");
  subcommand
      .add_option("--hop", options->hop_ms,
                  "With --profile: milliseconds that a microbatch's activations take between two "
                  "stages' machines, in place of what they take within this one")
      ->check(CLI::Range(0.0, 3.6e6))
      ->needs(profile);
  subcommand
      .add_option("--stage_memory", options->stage_memory,
                  "With --profile: bytes of activations that a stage has room for (also 512MB, "
                  "2GB). EAGER's forwards_ahead is chosen to fit; what does not fit is refused")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->needs(profile);
  subcommand.add_option("--timeline", options->timeline,
                        "Of a job with pipelines: draw what its stages do in a step, as foretold, "
                        "into this file (SVG)");
  return [argument, options] { return Plan(*argument, *options); };
}

}  // namespace parley
