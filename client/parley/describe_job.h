#ifndef PARLEY_CLIENT_PARLEY_DESCRIBE_JOB_H_
#define PARLEY_CLIENT_PARLEY_DESCRIBE_JOB_H_

#include <string>
#include <vector>

#include "client/parley/model_description.h"
#include "client/parley/signal_inbox.h"
#include "common/daemon/exit_code.h"
#include "proto/job.pb.h"

namespace parley {

// The job as a file that LoadJob reads.
std::string JobText(const JobConfig& job);

// The job that a command is given: the file JOB, changed by each --set.
struct JobArgument {
  std::string file;
  std::vector<std::string> overrides;
};

struct DescribedJob {
  ExitCode code = kFinished;
  std::string error;  // for stderr, where code is not kFinished: may have several lines
  JobConfig job;
  // Model and data are a program's of the user's own: nobody has looked at them, and `model` is
  // empty.
  bool own_program = false;
  ModelDescription model;
};

struct DescribeOptions {
  // For so many seconds, where it is above 0 and the job has pipelines: what its layers cost.
  double profile = 0;
  // Whether this machine has the device that the job asks for, since it is to run here.
  bool runs_here = false;
};

// Loads the job, and lets a worker read its model and data and say what it found: `parley-worker
// --describe`, which knows LibTorch. What is wrong with the job or its files shows here, before
// anything is started. Of a job that needs a program of its own it only loads the job. Runs on the
// main thread, which it holds until the worker has ended, stall_timeout has passed or a signal has
// come.
DescribedJob DescribeJob(const JobArgument& argument, SignalInbox& signals,
                         const DescribeOptions& options);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_DESCRIBE_JOB_H_
