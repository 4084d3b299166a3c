#ifndef PARLEY_WORKER_OWN_PROGRAM_H_
#define PARLEY_WORKER_OWN_PROGRAM_H_

#include <CLI/CLI.hpp>
#include <functional>

#include "absl/status/status.h"
#include "client/session.h"
#include "common/log.h"
#include "proto/job.pb.h"
#include "worker/device/device.h"
#include "worker/step_record.h"
#include "worker/training_metrics.h"

namespace parley {

// What a training loop of one's own is given; on the training thread.
struct OwnTraining {
  const JobConfig& job;
  Session& session;          // has joined the job
  ComputeDevice* device;     // where the job has it compute; nullptr: on the CPU
  StepRecord& steps;         // Done, after each step: its metrics, and what the log says of it
  TrainingMetrics& metrics;  // PhaseTimer, EvaluationDone: at /metrics, and in --trace's file
  Log& log;                  // one line each: DIR/worker-N.log under `parley run`

  // The steps begin: after the session's Register (a binding's Attach), when it is known who else
  // computes here. LibTorch computes with the job's `threads` from now on, or with this process's
  // share of the cores.
  void Begin() const;
};

// A program that trains in the place of parley-worker: model, data and loop are its own, what is
// around them is here. The arguments that a worker is started with, log, metrics and their
// endpoint, credentials, joining, the job's `device`, signals and preemption, the others' failures,
// the end within twice `liveness` though a step hangs, the exit status. What either function throws
// is as an error that it returns.
struct OwnProgram {
  // Before it joins: reads what it needs. Of an error (a file is missing) the others are told, and
  // the exit status is 2. May be empty.
  std::function<absl::Status(const JobConfig& job)> prepare;
  // The loop, from Register to Finish; on this thread. What it returns is as of EndTraining: OK
  // where Finish has said true, else why the job has to end. What it has bound to the device must
  // be gone when it returns.
  std::function<absl::Status(const OwnTraining& training)> train;
};

// app: with the program's name, what it is for, and what options it has of its own, which the job
// file may give (model.own.arguments): they are read when `prepare` is called; what is wrong with
// them is as an error of its. Called once, in main, before there is any other thread. Returns the
// exit status (docs/operating.md).
int RunOwnProgram(CLI::App& app, int argc, char** argv, const OwnProgram& program);

}  // namespace parley

#endif  // PARLEY_WORKER_OWN_PROGRAM_H_
