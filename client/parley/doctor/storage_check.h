#ifndef PARLEY_CLIENT_PARLEY_DOCTOR_STORAGE_CHECK_H_
#define PARLEY_CLIENT_PARLEY_DOCTOR_STORAGE_CHECK_H_

#include <string>

#include "client/parley/doctor/finding.h"
#include "client/parley/doctor/job_needs.h"
#include "client/parley/doctor/storage.h"

namespace parley {

// Whether the job's directory lies where all its processes see it, and is nobody else's to write.
Findings CheckStorage(const StorageFacts& facts, const std::string& directory,
                      const JobNeeds& needs);

// Whether there is room for its checkpoints, where they lie. facts: of `directory`, or where that
// is not there yet of the folder in which it will be.
Finding CheckSpace(const StorageFacts& facts, const std::string& directory, const JobNeeds& needs);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_DOCTOR_STORAGE_CHECK_H_
