#ifndef PARLEY_CLIENT_PARLEY_COMMAND_H_
#define PARLEY_CLIENT_PARLEY_COMMAND_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "client/parley/describe_job.h"
#include "common/daemon/exit_code.h"
#include "common/security/credentials.h"

namespace parley {

// A subcommand of parley: adds itself with its options to the application, and gives the function
// that does it, which is called on the main thread if the user asked for this subcommand. The
// function returns the exit status (common/daemon/exit_code.h), and has told on stderr why it is
// not 0.
using Command = std::function<int()>;

Command AddRun(CLI::App& subcommand);
Command AddPlan(CLI::App& subcommand);
Command AddJob(CLI::App& subcommand);
Command AddStatus(CLI::App& subcommand);
Command AddTop(CLI::App& subcommand);
Command AddWhyStuck(CLI::App& subcommand);
Command AddCheckpoint(CLI::App& subcommand);
Command AddDoctor(CLI::App& subcommand);
Command AddScale(CLI::App& subcommand);
Command AddDrain(CLI::App& subcommand);
Command AddStop(CLI::App& subcommand);

// For those that work on a job: adds JOB and --set. `argument` is filled in before the command
// runs.
void AddJobArgument(CLI::App& subcommand, JobArgument& argument);

// How a command reaches the coordinator of a job.
struct CoordinatorArgument {
  std::string coordinator;  // HOST:PORT or file:PATH
  std::string credentials;  // file; empty: beside the address file, if there is one
};

// Adds --coordinator and --credentials. `argument` is filled in before the command runs.
void AddCoordinatorArgument(CLI::App& subcommand, CoordinatorArgument& argument,
                            bool required = true);

// The job's credentials, or the exit status of the command, which has been told on stderr.
struct FoundCredentials {
  SharedCredentials credentials;
  std::optional<int> exit;
};
FoundCredentials FindCredentials(const CoordinatorArgument& argument);

// Says on stderr why the command ends, and gives its exit status.
int Exit(ExitCode code, const std::string& message);

// Says on stdout what was asked for; 1 where that could not be written, on a full disk say.
int Print(const std::string& text);

// Either: what is wrong with `status`, an InvalidArgument as wrong usage; or `text`.
int End(const absl::Status& status, const std::string& text);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_COMMAND_H_
