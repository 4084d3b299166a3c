// parley: the operator's command.
#include <iostream>

#include "client/parley/command.h"
#include "common/daemon/command_line.h"
#include "common/daemon/exit_code.h"

namespace parley {
namespace {

int Main(int argc, char** argv) {
  CLI::App app("Trains a job by a coordinator, parameter shards and workers, and looks at it.",
               "parley");
  // An unknown one is then reported by its name rather than as one that is missing.
  app.require_subcommand(0, 1);
  Command chosen;
  const auto add = [&](const char* name, const char* what, Command (*add_to)(CLI::App&)) {
    CLI::App* subcommand = app.add_subcommand(name, what);
    subcommand->callback([&chosen, command = add_to(*subcommand)] { chosen = command; });
  };
  add("run", "Runs all roles of a job on this machine, and shows its progress", AddRun);
  add("plan", "Checks a job and shows what would run; starts no role", AddPlan);
  add("job", "Prints a job file with all defaults filled in, or a field of it", AddJob);
  add("status", "Shows members and progress of a running job", AddStatus);
  add("top", "Shows a running job on the terminal, anew each second; q ends it", AddTop);
  add("why-stuck", "Shows who of a running job waits for whom, and who holds it up", AddWhyStuck);
  add("checkpoint", "Looks into a checkpoint, or makes a running job write one", AddCheckpoint);
  add("doctor", "Looks whether this machine is fit for a job, and says what to do where it is not",
      AddDoctor);
  add("scale", "Gives a running job more or fewer workers", AddScale);
  add("drain", "Takes one worker out of a running job when its step is done", AddDrain);
  add("stop", "Ends a running job when it has written a checkpoint", AddStop);
  if (auto code = ParseCommandLine(app, argc, argv)) return *code;
  if (!chosen) {
    std::cerr << app.help();
    return kWrongUsage;
  }
  return chosen();
}

}  // namespace
}  // namespace parley

int main(int argc, char** argv) { return parley::Main(argc, argv); }
