#include "worker/own_program.h"

#include <ATen/Parallel.h>

#include <string>

#include "common/daemon/command_line.h"
#include "common/daemon/daemon.h"
#include "common/daemon/exit_code.h"
#include "common/usable_cores.h"
#include "worker/preemption.h"
#include "worker/process_device.h"
#include "worker/threads.h"
#include "worker/training_end.h"
#include "worker/training_process.h"

namespace parley {

void OwnTraining::TakeCores() const {
  at::set_num_threads(ComputeThreads(job, UsableCores(), session.processes_here()));
}

int RunOwnProgram(CLI::App& app, int argc, char** argv, const OwnProgram& program) {
  DaemonFlags flags;
  AddDaemonFlags(app, flags, /*with_coordinator=*/true);
  std::string trace_file;
  AddTraceFlag(app, trace_file);
  if (const auto code = ParseCommandLine(app, argc, argv)) return *code;

  Preemption preemption;  // outlives the daemon's thread for signals
  Daemon daemon(WORKER, flags);
  if (absl::Status status = daemon.LoadJob(); !status.ok()) return daemon.Exit(kWrongUsage, status);
  if (absl::Status status = daemon.Serve({}); !status.ok()) {
    return daemon.Exit(kWrongUsage, status);
  }
  ProcessDevice device(daemon);
  TrainingProcess process = {daemon, preemption, WORKER, trace_file, nullptr, nullptr, nullptr};
  process.prepare = [&] {
    if (absl::Status chosen = device.Choose(); !chosen.ok()) return chosen;
    return program.prepare ? program.prepare(daemon.job()) : absl::OkStatus();
  };
  process.train = [&](Session& session, TrainingMetrics& metrics) {
    if (absl::Status opened = device.Open(session, metrics.trace()); !opened.ok()) return opened;
    absl::Status status =
        EndTraining(session, daemon.log(),
                    program.train({daemon.job(), session, device.get(), metrics, daemon.log()}));
    device.Over();
    return status;
  };
  return Run(process);
}

}  // namespace parley
