#include "server/coordinator/job_start.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/coordinator/checkpoint_files.h"

namespace parley {

absl::StatusOr<JobStart> CheckJobStart(FileSystem& files, const JobConfig& job,
                                       const std::string& directory, JobDirectory::Ask ask) {
  const absl::Status free = JobDirectory(files, directory, std::move(ask)).CheckNoOwner();
  if (!free.ok()) return free;
  JobStart start;
  start.checkpoint_directory =
      (std::filesystem::path(directory) / job.checkpoint().directory()).lexically_normal().string();
  if (!job.checkpoint().start_from().empty()) {
    auto from = LoadStart(files, job.checkpoint().start_from());
    if (!from.ok()) {
      // Another code than that of a coordinator that answers, whatever the reason.
      return absl::InvalidArgumentError(
          absl::StrCat("checkpoint.start_from: ", from.status().message()));
    }
    start.from = *std::move(from);
  }
  if (job.checkpoint().at_end()) {
    const absl::Status clear = CheckNoEarlierRun(files, start.checkpoint_directory, start.from);
    if (!clear.ok()) return clear;
  }
  return start;
}

}  // namespace parley
