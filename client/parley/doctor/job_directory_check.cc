#include "client/parley/doctor/job_directory_check.h"

#include <filesystem>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/parley/doctor/clock_check.h"
#include "client/parley/doctor/directory_probe.h"
#include "client/parley/doctor/storage.h"
#include "client/parley/doctor/storage_check.h"
#include "client/parley/doctor/within_time.h"
#include "common/file_system.h"

namespace parley {
namespace {

// A dead file server never answers; a slow one takes some seconds for all that is tried.
constexpr absl::Duration kLimit = absl::Minutes(2);
// What the probe writes, and more.
constexpr uint64_t kRoom = uint64_t{4} << 20;

std::string NearestThere(FileSystem& files, const std::string& path) {
  std::filesystem::path there = path;
  while (!files.Exists(there.string()) && there != there.parent_path()) there = there.parent_path();
  return there.string();
}

// False: the probe would only tell the same again.
bool LookAt(FileSystem& files, const std::string& directory, const std::string& checkpoints,
            const JobNeeds& needs, Findings& findings) {
  const auto facts = LookAtStorage(directory);
  const auto room = LookAtStorage(NearestThere(files, checkpoints));
  for (const auto* each : {&facts, &room}) {
    if (each->ok()) continue;
    findings.push_back(Failure("file system", std::string(each->status().message()),
                               "an --out that this user may enter, or chmod u+x its folders"));
    return false;
  }
  Append(findings, CheckStorage(*facts, directory, needs));
  findings.push_back(CheckSpace(*room, checkpoints, needs));
  return facts->free_bytes >= kRoom;
}

DirectoryReport Probe(const std::string& directory, const std::string& checkpoints,
                      const JobNeeds& needs) {
  const auto files = PosixFileSystem();
  DirectoryProbe probe(*files, directory, absl::Now);
  DirectoryReport report;
  Findings& findings = report.findings;
  report.usable = probe.Begin(findings);
  if (report.usable && LookAt(*files, directory, checkpoints, needs, findings)) {
    probe.TryWriting(findings);
    probe.TryRenaming(findings);
    probe.TryExclusiveCreation(findings);
  }
  probe.End();
  if (!probe.skew()) return report;
  findings.push_back(CheckSkew("file server's clock", "the file server", *probe.skew()));
  if (const auto skew = CoordinatorSkew(*files, directory, *probe.skew())) {
    findings.push_back(CheckSkew("coordinator's clock", "the coordinator", *skew));
  }
  return report;
}

}  // namespace

DirectoryReport CheckJobDirectory(const std::string& directory, const std::string& checkpoints,
                                  const JobNeeds& needs) {
  auto report = WithinTime(
      kLimit, [directory, checkpoints, needs] { return Probe(directory, checkpoints, needs); });
  if (report) return *std::move(report);
  return {
      {Failure("job directory",
               absl::StrCat(directory, " does not answer within ", absl::FormatDuration(kLimit)),
               "its file server is away or stuck (dmesg, findmnt -T DIR): bring it back, or "
               "another --out")},
      false};
}

}  // namespace parley
