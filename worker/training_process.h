#ifndef PARLEY_WORKER_TRAINING_PROCESS_H_
#define PARLEY_WORKER_TRAINING_PROCESS_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "client/reduce/reducer.h"
#include "client/session.h"
#include "common/daemon/daemon.h"
#include "proto/types.pb.h"
#include "worker/preemption.h"
#include "worker/training_metrics.h"

namespace parley {

// The life of a process with a training thread, a worker or a stage, once its daemon serves: joins,
// trains, and ends with the job or when it is told to.
struct TrainingProcess {
  Daemon& daemon;
  Preemption& preemption;  // outlives the daemon's thread for signals
  Role role = WORKER;
  std::string trace_file;  // empty: none

  // As Session::Options::reduce_by; may be empty.
  std::function<std::unique_ptr<Reducer>(std::unique_ptr<Reducer>)> reduce_by;
  // Read and checked before it joins. An error: the others learn why nothing will come of the job.
  std::function<absl::Status()> prepare;
  // On this thread; until the job ends.
  std::function<absl::Status(Session& session, TrainingMetrics& metrics)> train;
};

// --trace, into TrainingProcess::trace_file.
void AddTraceFlag(CLI::App& app, std::string& trace_file);

// Returns the exit status.
int Run(const TrainingProcess& process);

}  // namespace parley

#endif  // PARLEY_WORKER_TRAINING_PROCESS_H_
