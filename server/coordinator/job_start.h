#ifndef PARLEY_SERVER_COORDINATOR_JOB_START_H_
#define PARLEY_SERVER_COORDINATOR_JOB_START_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "proto/job.pb.h"
#include "server/coordinator/job_directory.h"
#include "server/coordinator/view.h"

namespace parley {

// What a job starts from, and where it writes its checkpoints.
struct JobStart {
  std::string checkpoint_directory;  // absolute
  std::optional<StartPoint> from;    // checkpoint.start_from
};

// Whether the job may start in its directory (absolute), where nobody else runs, what it starts
// from can be read, and no checkpoint of an earlier run is in its way. Writes nothing: the
// coordinator asks before it takes the directory, and `parley run` before it touches it.
// ALREADY_EXISTS, with the address, where a coordinator answers; else the job or the directory is
// wrong: INVALID_ARGUMENT, or the codes of CheckNoEarlierRun and FileSystem.
absl::StatusOr<JobStart> CheckJobStart(FileSystem& files, const JobConfig& job,
                                       const std::string& directory, JobDirectory::Ask ask);

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_JOB_START_H_
