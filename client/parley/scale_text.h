#ifndef PARLEY_CLIENT_PARLEY_SCALE_TEXT_H_
#define PARLEY_CLIENT_PARLEY_SCALE_TEXT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "proto/coordinator.pb.h"

namespace parley {

// What a worker that is started by hand has to be told of the job.
struct WorkerStart {
  std::string coordinator;    // as the option named it
  std::string credentials;    // the same; may be empty
  std::string directory;      // the job's; empty: it is not known
  bool has_job_file = false;  // job.textproto, in that directory
  // Whether `submit` has started it, each process as a Slurm job of its own; true where the
  // directory is not known.
  bool may_be_on_slurm = true;
  bool is_beyond_machine = false;  // the coordinator is reached by others than its own machine
};

// coordinator: as the option named it; where that is a file, its folder is the job's.
WorkerStart WorkerStartOf(FileSystem& files, const std::string& coordinator,
                          const std::string& credentials);

// What `parley scale` says once the job wants so many workers: who goes, or who is to be started
// and how.
std::string ScaleText(const SetWorkersReply& reply, uint32_t workers, const WorkerStart& start);

// A member as `parley status` names it: "worker-3". INVALID_ARGUMENT where it is none.
absl::StatusOr<DrainRequest> DrainOf(const std::string& member);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_SCALE_TEXT_H_
