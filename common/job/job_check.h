#ifndef PARLEY_COMMON_JOB_JOB_CHECK_H_
#define PARLEY_COMMON_JOB_JOB_CHECK_H_

#include "absl/status/status.h"
#include "common/job/job_source.h"

namespace parley {

// Whether a job, its defaults filled in, can run in this release: required fields, ranges, fields
// that exclude each other, features that are not there yet. InvalidArgument for the first thing
// that is wrong. Looks at no file.
absl::Status CheckJob(const JobSource& source);

}  // namespace parley

#endif  // PARLEY_COMMON_JOB_JOB_CHECK_H_
