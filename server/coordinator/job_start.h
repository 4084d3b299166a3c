#ifndef PARLEY_SERVER_COORDINATOR_JOB_START_H_
#define PARLEY_SERVER_COORDINATOR_JOB_START_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/file_system.h"
#include "proto/job.pb.h"
#include "server/coordinator/view.h"

namespace parley {

// What a job starts from, and where it writes its checkpoints.
struct JobStart {
  std::string checkpoint_directory;  // absolute
  std::optional<StartPoint> from;    // checkpoint.start_from
};

// What the job's checkpoint.start_from is; nothing where it has none. INVALID_ARGUMENT, with the
// field's name, where it cannot be read or checkpoint.ignore_unexpected is not for it.
absl::StatusOr<std::optional<StartPoint>> ReadStart(FileSystem& files, const JobConfig& job);

// How a job begins in its directory.
struct StartMode {
  bool goes_on = false;  // the log says that it is under way: another coordinator takes over
  // It is past GATHERING then: the view says what there is to know of what it has started from,
  // which may be gone by now.
  bool has_started = false;
  // Where there is a whole checkpoint of an earlier run, the newest one is what it starts from, in
  // place of checkpoint.start_from.
  bool resume = false;
};

// Whether what the job starts from can be read, and no checkpoint of an earlier run is in its way;
// that of a run which goes on is its own. Of one that has started nothing is read. `directory`: the
// job's, absolute. Writes nothing. INVALID_ARGUMENT, or the codes of CheckNoEarlierRun and
// FileSystem.
absl::StatusOr<JobStart> CheckJobStart(FileSystem& files, const JobConfig& job,
                                       const std::string& directory, const StartMode& mode);

// Whether a coordinator of the job answers at an address: OK if so.
using AskForCoordinator = std::function<absl::Status(const std::string& address)>;

struct NewRunMode {
  bool resume = false;  // as in StartMode
  // The caller answers for it that no process of an earlier run is left.
  bool anew = false;
};

// Whether `parley run` may begin the job in its directory: as CheckJobStart, and nobody runs there,
// or (without mode.anew) may still wait for a coordinator that does not. Writes nothing.
// ALREADY_EXISTS, with the address, where a coordinator answers; FAILED_PRECONDITION, with what to
// do, where a job has not ended; else as CheckJobStart and JobLog::Open.
absl::StatusOr<JobStart> CheckNewRun(FileSystem& files, const JobConfig& job,
                                     const std::string& directory, const NewRunMode& mode,
                                     const AskForCoordinator& ask);

// Records that the run which the directory's log is of is over, if it has not ended: the next
// coordinator begins anew, and one that lives somewhere after all rules no more. The codes of
// JobLog::Open and JobLog::Take.
absl::Status EndEarlierRun(FileSystem& files, const JobConfig& job, const std::string& directory,
                           absl::Time now);

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_JOB_START_H_
