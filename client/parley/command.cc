#include "client/parley/command.h"

#include <cstdio>
#include <utility>

#include "absl/status/statusor.h"
#include "client/job_credentials.h"

namespace parley {

void AddJobArgument(CLI::App& subcommand, JobArgument& argument) {
  subcommand.add_option("JOB", argument.file, "The job file (textproto of JobConfig)")->required();
  subcommand
      .add_option("--set", argument.overrides,
                  "PATH=VALUE: a field of the job, e.g. cluster.workers=4; may be repeated")
      ->allow_extra_args(false);
}

void AddCoordinatorArgument(CLI::App& subcommand, CoordinatorArgument& argument, bool required) {
  CLI::Option* const coordinator =
      subcommand.add_option("--coordinator", argument.coordinator,
                            "HOST:PORT of the coordinator, or file:PATH of its address file");
  if (required) coordinator->required();
  subcommand.add_option("--credentials", argument.credentials,
                        "File of the job's credentials; where --coordinator is a file, the one "
                        "beside it is taken");
}

FoundCredentials FindCredentials(const CoordinatorArgument& argument) {
  absl::StatusOr<SharedCredentials> found =
      CredentialsOfJob(argument.coordinator, argument.credentials);
  if (found.ok()) return {*std::move(found), std::nullopt};
  return {nullptr, Exit(kWrongUsage, std::string(found.status().message()))};
}

int Exit(ExitCode code, const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  return code;
}

int Print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return std::fflush(stdout) == 0 ? kFinished : kFailed;
}

int End(const absl::Status& status, const std::string& text) {
  if (status.ok()) return Print(text);
  return Exit(absl::IsInvalidArgument(status) ? kWrongUsage : kFailed,
              std::string(status.message()));
}

}  // namespace parley
