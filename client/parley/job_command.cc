#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/parley/command.h"
#include "common/job/job_fields.h"
#include "common/job/job_file.h"

namespace parley {
namespace {

struct JobOptions {
  JobArgument job;
  std::string get;  // a field; empty: all of the job
};

int PrintJob(const JobOptions& options) {
  const auto job = LoadJob(options.job.file, options.job.overrides);
  if (!job.ok()) return Exit(kWrongUsage, std::string(job.status().message()));
  std::string text =
      absl::StrCat("# ", options.job.file, " with all defaults filled in\n", JobText(*job));
  if (!options.get.empty()) {
    const auto values = FieldTexts(*job, options.get);
    if (!values.ok()) {
      return Exit(kWrongUsage, absl::StrCat("--get ", values.status().message()));
    }
    text.clear();
    for (const std::string& value : *values) absl::StrAppend(&text, value, "\n");
  }
  return Print(text);
}

}  // namespace

Command AddJob(CLI::App& subcommand) {
  const auto options = std::make_shared<JobOptions>();
  AddJobArgument(subcommand, options->job);
  subcommand.add_option(
      "--get", options->get,
      "The value of a field only, such as cluster.workers: a line, or one for each "
      "element of a list; none where it is not set");
  return [options] { return PrintJob(*options); };
}

}  // namespace parley
