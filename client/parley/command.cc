#include "client/parley/command.h"

#include <cstdio>

namespace parley {

void AddJobArgument(CLI::App& subcommand, JobArgument& argument) {
  subcommand.add_option("JOB", argument.file, "The job file (textproto of JobConfig)")->required();
  subcommand
      .add_option("--set", argument.overrides,
                  "PATH=VALUE: a field of the job, e.g. cluster.workers=4; may be repeated")
      ->allow_extra_args(false);
}

int Exit(ExitCode code, const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  return code;
}

}  // namespace parley
