#ifndef PARLEY_COMMON_JOB_CHECK_FILES_H_
#define PARLEY_COMMON_JOB_CHECK_FILES_H_

#include "absl/status/status.h"
#include "common/file_system.h"
#include "proto/job.pb.h"

namespace parley {

// Whether the files that a job of LoadJob names are there: model, data, checkpoint to start from.
// For processes that read them; coordinator and shards may run on hosts without the data. NotFound
// names the field and the file, and says how to get it.
absl::Status CheckFiles(const JobConfig& job, FileSystem& files);

}  // namespace parley

#endif  // PARLEY_COMMON_JOB_CHECK_FILES_H_
