#ifndef PARLEY_SERVER_COORDINATOR_REPORTER_H_
#define PARLEY_SERVER_COORDINATOR_REPORTER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/daemon/daemon.h"
#include "common/file_system.h"
#include "server/coordinator/coordinator_metrics.h"
#include "server/coordinator/course.h"
#include "server/coordinator/event_file.h"
#include "server/coordinator/history.h"
#include "server/coordinator/job_directory.h"
#include "server/coordinator/locked_coordinator.h"

namespace parley {

// What goes on, for the log, the metrics, targets.json, history.jsonl and TensorBoard. On main's
// thread.
class Reporter {
 public:
  // All must outlive it.
  Reporter(Daemon& daemon, FileSystem& files, JobDirectory& directory);

  // Tells what has changed since the last call.
  void Report(const LockedCoordinator& coordinator);

 private:
  void ReportCourse(const LockedCoordinator& coordinator);
  void ReportScaling(const LockedCoordinator& coordinator);
  void ReportGoingBack(const LockedCoordinator& coordinator);
  void ReportCheckpoints(const LockedCoordinator& coordinator);
  void ReportPreemption(const LockedCoordinator& coordinator);
  void WriteTargets(const std::vector<Member>& members);

  Daemon& daemon_;
  JobDirectory& directory_;
  CoordinatorMetrics metrics_;
  Course course_;
  History history_;
  std::optional<EventFile> event_file_;    // where the job wants one
  std::map<uint64_t, std::string> known_;  // names by id
  uint64_t epoch_ = 0;
  uint32_t wanted_workers_ = 0;
  Phase phase_ = PHASE_UNSPECIFIED;
  uint64_t job_epoch_ = 0;
  uint64_t steps_lost_ = 0;
  std::set<std::string> damaged_;  // checkpoints
  uint64_t checkpoints_written_ = 0;
  uint64_t checkpoints_failed_ = 0;
  uint64_t checkpoints_interrupted_ = 0;
  std::string preemption_;
  bool written_ = false;
  bool failed_to_write_ = false;
};

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_REPORTER_H_
