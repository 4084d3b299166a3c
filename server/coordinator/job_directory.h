#ifndef PARLEY_SERVER_COORDINATOR_JOB_DIRECTORY_H_
#define PARLEY_SERVER_COORDINATOR_JOB_DIRECTORY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_system.h"

namespace parley {

// The job's directory: the address file, targets.json, and where the rest lies, among it the log,
// whose records make one coordinator its owner (job_log.h). Thread-safe.
class JobDirectory {
 public:
  // `path`: absolute. `files` must outlive the object.
  JobDirectory(FileSystem& files, std::string path);

  // InvalidArgument where `path` is not UTF-8: the folders of checkpoints in it are told to others,
  // in messages that nobody could read then.
  static absl::Status CheckName(const std::string& path);

  // Makes the directory where it does not exist, and finds out whether it can be written.
  absl::Status Prepare();

  // Atomically, readers see the old or the new.
  absl::Status WriteAddress(const std::string& address);
  absl::Status WriteTargets(const std::string& content);

  // Whether an operator has stopped the job (`parley stop`), as a file for scripts that start
  // processes again: it is there from before anybody ends for that reason until the job is started
  // anew. deploy/slurm/role reads it.
  absl::Status WriteStopped(bool stopped);

  // The address file goes, if it is still this one's.
  void RemoveAddress(const std::string& address);

  // The content of the address file; empty if there is none.
  absl::StatusOr<std::string> ReadAddress() const;

  // The last part of its path: the folder's own name.
  std::string name() const;
  std::string address_file() const { return path_ + "/coordinator.address"; }
  std::string stopped_file() const { return path_ + "/stopped"; }
  // Where JobLog keeps its records.
  std::string log_directory() const { return path_ + "/log"; }
  // The job's course (history.h).
  std::string history_file() const { return path_ + "/history.jsonl"; }
  // A path of the job file that is relative to this directory.
  std::string Resolved(const std::string& path) const;

 private:
  FileSystem& files_;
  const std::string path_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_JOB_DIRECTORY_H_
