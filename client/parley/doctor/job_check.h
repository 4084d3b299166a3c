#ifndef PARLEY_CLIENT_PARLEY_DOCTOR_JOB_CHECK_H_
#define PARLEY_CLIENT_PARLEY_DOCTOR_JOB_CHECK_H_

#include <string>

#include "absl/status/status.h"
#include "client/parley/describe_job.h"
#include "client/parley/doctor/finding.h"

namespace parley {

// The job file, which `loaded` says of whether it can be read.
Finding CheckJobFile(const std::string& file, const absl::Status& loaded);

// The model and the data that the job names, as a worker has found them on this machine.
Finding CheckModelAndData(const DescribedJob& described);

// Whether a job could begin in its directory: `start` is what CheckNewRun (server/coordinator/
// job_start.h) says.
Finding JobStartFinding(const std::string& directory, const absl::Status& start);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_DOCTOR_JOB_CHECK_H_
