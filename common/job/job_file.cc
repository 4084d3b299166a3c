#include "common/job/job_file.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/file_system.h"
#include "common/job/job_check.h"
#include "common/job/job_defaults.h"
#include "common/job/job_source.h"
#include "common/seed.h"

namespace parley {
namespace {

constexpr uint64_t kMostBytes = 1 << 20;

// Slurm.warning_seconds where it is left out, and what of it is left for the processes to end and
// to ask Slurm for the queue. Slurm kills nobody before KillWait (30 s) is over, too.
constexpr uint32_t kWarningSeconds = 120;
constexpr absl::Duration kAfterWarning = absl::Seconds(35);

absl::Duration DurationOf(const std::string& text) {
  absl::Duration duration;
  return absl::ParseDuration(text, &duration) ? duration : absl::ZeroDuration();
}

// "/data/mnist/" -> "mnist".
void KeepName(std::string& path) {
  std::filesystem::path whole = std::filesystem::path(path).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  path = whole.filename().string();
}

}  // namespace

absl::StatusOr<JobConfig> LoadJob(const std::string& path,
                                  const std::vector<std::string>& overrides) {
  const std::unique_ptr<FileSystem> files = PosixFileSystem();
  const absl::StatusOr<std::string> text = ReadWholeFile(*files, path, kMostBytes);
  if (!text.ok()) return text.status();
  absl::StatusOr<std::unique_ptr<JobSource>> parsed = JobSource::Parse(path, *text);
  if (!parsed.ok()) return parsed.status();
  JobSource& source = **parsed;
  for (const std::string& override : overrides) {
    if (absl::Status status = source.Override(override); !status.ok()) return status;
  }
  FillInDefaults(source.job());
  if (absl::Status status = CheckJob(source); !status.ok()) return status;
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat(path, ": cannot find its folder: ", error.message()));
  }
  ResolvePaths(source.job(), absolute.parent_path().string());
  return std::move(source.job());
}

std::string JobFingerprint(const JobConfig& job) {
  // Where a machine keeps its files is its own matter: of paths only the last name counts, so that
  // copies of a job file in different folders are the same job.
  JobConfig same = job;
  // How long to wait until it begins is a matter of each start: deploy/slurm/submit sets it.
  same.clear_gather_timeout();
  if (same.model().has_torchscript()) KeepName(*same.mutable_model()->mutable_torchscript());
  if (same.data().has_idx()) KeepName(*same.mutable_data()->mutable_idx()->mutable_directory());
  if (same.data().has_cifar10()) {
    KeepName(*same.mutable_data()->mutable_cifar10()->mutable_directory());
  }
  if (same.data().has_image_folders()) {
    KeepName(*same.mutable_data()->mutable_image_folders()->mutable_directory());
  }
  if (same.data().has_text()) {
    KeepName(*same.mutable_data()->mutable_text()->mutable_train());
    KeepName(*same.mutable_data()->mutable_text()->mutable_test());
  }
  if (same.data().has_safetensors()) {
    KeepName(*same.mutable_data()->mutable_safetensors()->mutable_train());
    KeepName(*same.mutable_data()->mutable_safetensors()->mutable_test());
  }
  KeepName(*same.mutable_checkpoint()->mutable_directory());
  KeepName(*same.mutable_checkpoint()->mutable_start_from());
  return absl::StrFormat("%016x", DeriveSeed(0, same.SerializeAsString()));
}

absl::Duration Liveness(const JobConfig& job) { return DurationOf(job.liveness()); }

absl::Duration StallTimeout(const JobConfig& job) { return DurationOf(job.stall_timeout()); }

absl::Duration GatherTimeout(const JobConfig& job) {
  return job.has_gather_timeout() ? DurationOf(job.gather_timeout()) : StallTimeout(job);
}
absl::Duration CheckpointPeriod(const JobConfig& job) {
  return DurationOf(job.checkpoint().every());
}
absl::Duration Autonomy(const JobConfig& job) { return DurationOf(job.autonomy()); }
absl::Duration PreemptionGrace(const JobConfig& job) { return DurationOf(job.preemption_grace()); }

absl::Duration WarningGrace(const JobConfig& job) {
  const absl::Duration grace = PreemptionGrace(job);
  if (grace == absl::ZeroDuration()) return grace;
  const Slurm& slurm = job.cluster().slurm();
  const uint32_t warning = slurm.has_warning_seconds() ? slurm.warning_seconds() : kWarningSeconds;
  return std::max(grace, absl::Seconds(warning) - kAfterWarning);
}

absl::Duration Patience(const JobConfig& job) {
  const absl::Duration patience = StallTimeout(job) + Liveness(job);
  if (Autonomy(job) == absl::ZeroDuration()) return patience;
  // It is missed for `liveness` before this side counts as alone.
  return patience + Autonomy(job) + 2 * Liveness(job);
}

}  // namespace parley
