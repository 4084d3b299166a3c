#ifndef PARLEY_CLIENT_PARLEY_SUPERVISION_H_
#define PARLEY_CLIENT_PARLEY_SUPERVISION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/parley/child_process.h"
#include "common/daemon/exit_code.h"
#include "proto/coordinator.pb.h"

namespace parley {

// What `parley run` makes of what it sees of its processes: when it has to end them, with which
// exit status it ends itself, and its last line. A plain state machine: no processes, no clock.
//
// A job that is up ends by itself, since all its members learn the first cause; only who is still
// there after `patience` is ended. Before that (members still gather) nobody may notice that a
// process is missing, so one that goes then ends the run at once, with its own exit status, unless
// it is started again. Workers that the job can spare (min_workers) may go while it is up, and
// those that it has sent away (`parley scale`, `parley drain`) with exit status 0; so may the
// coordinator of a job with `autonomy`, which the operator may start again. Who was ended by a
// signal while the job is up is started again, and a worker or stage, whose place waits for another
// one, while members gather, so often in all as `max_restarts` says. On SIGTERM and SIGUSR1 a job
// that is up has its grace and a little more; a second SIGTERM (unless one_sigterm), and any
// SIGINT, ends it at once.
class Supervision {
 public:
  struct Limits {
    absl::Duration patience;      // from the first process that ended to the last
    absl::Duration first_answer;  // of the coordinator, from its start
    // That the job goes on without: workers - min_workers, of the job file; it follows what `parley
    // scale` says.
    uint32_t spare_workers = 0;
    absl::Duration autonomy = absl::ZeroDuration();  // of the job without its coordinator
    uint32_t max_restarts = 0;                       // of processes that a signal has ended
    bool waits_for_workers = true;  // a job that has lost one, beyond the spare ones, goes on
    absl::Duration preemption_grace = absl::ZeroDuration();  // of a job that is told to end
    absl::Duration warning_grace = absl::ZeroDuration();     // the same by SIGUSR1
    bool one_sigterm = false;                                // further ones say nothing new
  };
  struct Outcome {
    ExitCode code = kFinished;
    std::string last_line;  // empty: finished as asked
  };

  Supervision(Limits limits, absl::Time started) : limits_(limits), started_(started) {}

  void Saw(const GetStatusReply& status);
  // Of one that has ended, first of all: whether another process is to take its place. Then it is
  // not told by ChildEnded.
  bool Restarts(const std::string& name, const ChildExit& exit);
  uint32_t restarts() const { return restarts_; }
  // last_line: of its stderr. log: where that is, for people.
  void ChildEnded(const std::string& name, const ChildExit& exit, const std::string& last_line,
                  const std::string& log, absl::Time now);
  // True: the job is up and may end by itself, with a checkpoint, if the coordinator (or, where
  // that is away, everybody else) is told of this signal. A SIGTERM after SIGUSR1 is one, too: it
  // leaves less time.
  bool Signalled(int signal, absl::Time now);
  // How long the job may go on after the signal.
  absl::Duration GraceOf(int signal) const;
  // The run itself cannot go on.
  void Failed(ExitCode code, const std::string& why);

  // Whether the coordinator has gone while the job was up, and none has answered since.
  bool coordinator_is_away() const { return away_since_ != absl::InfiniteFuture(); }

  // Whether all processes that still run are to be ended now. `running`: their names.
  bool MustEnd(const std::vector<std::string>& running, absl::Time now);

  // When all have ended. Those that ended because of MustEnd need not be told.
  Outcome Result() const;

 private:
  struct Ended {
    std::string name;
    ChildExit exit;
    std::string last_line;
    std::string log;
  };
  static Outcome Of(const Ended& child);
  void FollowWanted(uint32_t wanted);

  Limits limits_;
  absl::Time started_;
  std::optional<Phase> phase_;  // last seen
  std::optional<FirstCause> cause_;
  std::vector<Ended> ended_;          // in that order; without those that the job goes on without
  std::optional<Ended> coordinator_;  // that the job went on without
  uint64_t generation_ = 0;           // of the coordinator, last seen
  absl::Time away_since_ = absl::InfiniteFuture();
  uint32_t wanted_workers_ = 0;   // last seen; 0: not yet
  uint32_t lost_workers_ = 0;     // since that was another number
  bool worker_has_gone_ = false;  // with exit status 0, while the job was not known to end
  uint32_t restarts_ = 0;
  absl::Time first_end_ = absl::InfiniteFuture();
  std::string preempted_by_;  // name of the signal
  bool terminated_ = false;   // by SIGTERM
  absl::Time preempted_until_ = absl::InfiniteFuture();
  std::optional<Outcome> decided_;  // by something else than the first cause
};

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_SUPERVISION_H_
