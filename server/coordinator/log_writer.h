#ifndef PARLEY_SERVER_COORDINATOR_LOG_WRITER_H_
#define PARLEY_SERVER_COORDINATOR_LOG_WRITER_H_

#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/timers.h"
#include "common/log.h"
#include "server/coordinator/job_log.h"
#include "server/coordinator/locked_coordinator.h"

namespace parley {

// The one who writes a coordinator's states into its log, as soon as there is something new, and
// who finds out whether this coordinator still rules the job. It owns the log; all it does it does
// as tasks of timers of its own, since it waits for the disk. Where the disk fails it tries again
// for as long as it lives; where another coordinator rules it makes this one lose.
class LogWriter {
 public:
  struct Options {
    std::shared_ptr<Timers> timers;  // nobody else's
    absl::Duration liveness;
    Log* log;  // what operators read
    // How far the wall clock, by which records are, is ahead of the timers': WallAheadOfSteady.
    std::function<absl::Duration()> wall_ahead = [] { return absl::ZeroDuration(); };
    // Called every liveness / 2 after it was found that this coordinator still rules.
    std::function<void()> on_still_ruling;
    // Called with each state before it is recorded, and so before anybody is told of it; an error
    // is one of the disk.
    std::function<absl::Status(const CoordinatorState&)> before_record;
  };

  // `job_log`: after Take. The coordinator, not yet open, and options.log must outlive it.
  LogWriter(JobLog job_log, LockedCoordinator& coordinator, Options options);
  // Stops the timers, and waits for what they do. What is not recorded by then never is, so nobody
  // is told anything any more.
  ~LogWriter();

  // Says so, once each time, where the disk has kept the writer for `liveness`. On any thread but
  // that of the timers, which waits then.
  void TellIfSlow();

 private:
  // The thread is with the disk from now on, or no more.
  void GoToDisk();
  void ComeBack();
  void Write();
  void CheckRule();
  void Recover();
  void Handle(const absl::Status& error);

  const Options options_;
  JobLog job_log_;
  LockedCoordinator& coordinator_;
  absl::Time failing_since_ = absl::InfiniteFuture();
  absl::Mutex mu_;
  absl::Time at_disk_since_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  bool told_slow_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_LOG_WRITER_H_
