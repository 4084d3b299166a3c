#ifndef PARLEY_COMMON_JOB_JOB_DEFAULTS_H_
#define PARLEY_COMMON_JOB_JOB_DEFAULTS_H_

#include <string>

#include "proto/job.pb.h"

namespace parley {

// Gives every field that is not set the default that proto/job.proto states, so that a printed job
// shows all that it runs with. Required fields stay as they are.
void FillInDefaults(JobConfig& job);

// Makes paths absolute that are relative to the job file; `folder` is where that lies.
// checkpoint.directory stays: it is relative to the job's directory.
void ResolvePaths(JobConfig& job, const std::string& folder);

}  // namespace parley

#endif  // PARLEY_COMMON_JOB_JOB_DEFAULTS_H_
