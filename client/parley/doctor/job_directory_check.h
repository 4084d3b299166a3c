#ifndef PARLEY_CLIENT_PARLEY_DOCTOR_JOB_DIRECTORY_CHECK_H_
#define PARLEY_CLIENT_PARLEY_DOCTOR_JOB_DIRECTORY_CHECK_H_

#include <string>

#include "client/parley/doctor/finding.h"
#include "client/parley/doctor/job_needs.h"

namespace parley {

struct DirectoryReport {
  Findings findings;
  bool usable = true;  // false: it cannot be had, or whoever holds it does not answer
};

// All that is asked of a job's directory and of the clock of whoever holds it, for a limited time.
// What it makes there is gone afterwards. Both are absolute. checkpoints: where these go.
DirectoryReport CheckJobDirectory(const std::string& directory, const std::string& checkpoints,
                                  const JobNeeds& needs);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_DOCTOR_JOB_DIRECTORY_CHECK_H_
