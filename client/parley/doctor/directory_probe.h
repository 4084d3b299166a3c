#ifndef PARLEY_CLIENT_PARLEY_DOCTOR_DIRECTORY_PROBE_H_
#define PARLEY_CLIENT_PARLEY_DOCTOR_DIRECTORY_PROBE_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/parley/doctor/clock_check.h"
#include "client/parley/doctor/finding.h"
#include "common/file_system.h"

namespace parley {

// Does in a job's directory what the job will do there: makes it, writes, syncs, renames over a
// file that others read, creates one that others create too. All of it in a folder of its own; what
// it has made is gone afterwards, the directory too if it was not there. One thread's, which may
// wait for the file system for as long as that takes.
class DirectoryProbe {
 public:
  // `directory`: absolute. `now`: the clock.
  DirectoryProbe(FileSystem& files, std::string directory, std::function<absl::Time()> now)
      : files_(files), directory_(std::move(directory)), now_(std::move(now)) {}

  // Makes the directory and the probe's folder in it. False: nothing more can be looked at. Before
  // the others.
  bool Begin(Findings& findings);

  void TryWriting(Findings& findings);
  void TryRenaming(Findings& findings);
  void TryExclusiveCreation(Findings& findings);

  // Removes all that was made. Last.
  void End();

  // Of the machine that holds the directory. After TryWriting.
  const std::optional<ClockSkew>& skew() const { return skew_; }

 private:
  std::string At(const std::string& name) const { return folder_ + "/" + name; }

  FileSystem& files_;
  const std::string directory_;
  const std::function<absl::Time()> now_;
  std::string folder_;             // the probe's own
  std::vector<std::string> made_;  // folders above it that were not there, the uppermost first
  std::optional<ClockSkew> skew_;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_DOCTOR_DIRECTORY_PROBE_H_
