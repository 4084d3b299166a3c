#include "client/parley/supervision.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/parley/signal_inbox.h"
#include "common/daemon/signals.h"

namespace parley {
namespace {

// How much longer than the job's grace the processes may be there: the coordinator ends the job at
// that time, and a member that it does not reach goes 2 s later.
constexpr absl::Duration kAfterGrace = absl::Seconds(3);

// Whose last line to believe first: the coordinator composes the first cause; where it is lost,
// the step leader does.
int Rank(const std::string& name) {
  if (name == "coordinator") return 0;
  if (name == "shard-0") return 1;
  return 2;
}

ExitCode CodeOf(const ChildExit& exit) {
  if (exit.signal != 0) return kFailed;
  if (exit.code == kPreempted || exit.code == kWrongUsage) return static_cast<ExitCode>(exit.code);
  return kFailed;
}

}  // namespace

void Supervision::Saw(const GetStatusReply& status) {
  phase_ = status.phase();
  FollowWanted(status.wanted_workers());
  if (status.generation() > generation_) away_since_ = absl::InfiniteFuture();
  generation_ = std::max<uint64_t>(generation_, status.generation());
  if (status.phase() == FAILED && status.has_cause() && !cause_ && !decided_) {
    cause_ = status.cause();
  }
}

void Supervision::FollowWanted(uint32_t wanted) {
  if (wanted == 0 || wanted == wanted_workers_) return;
  if (wanted_workers_ != 0) {
    // Those that were lost before are made up for, or are among those that are wanted no more.
    lost_workers_ = 0;
    const int64_t spare = static_cast<int64_t>(limits_.spare_workers) + wanted - wanted_workers_;
    limits_.spare_workers = static_cast<uint32_t>(std::max<int64_t>(spare, 0));
  }
  wanted_workers_ = wanted;
}

bool Supervision::Restarts(const std::string& name, const ChildExit& exit) {
  const bool up = phase_ == PREPARING || phase_ == TRAINING || phase_ == SAVING;
  // A shard that is lost then ends the job.
  const bool keeps_place = phase_ == GATHERING &&
                           (absl::StartsWith(name, "worker-") || absl::StartsWith(name, "stage-"));
  // The coordinator ends the job for it when its lease has ended, whoever comes meanwhile.
  if (up && absl::StartsWith(name, "worker-") && !limits_.waits_for_workers &&
      lost_workers_ >= limits_.spare_workers) {
    return false;
  }
  // One that goes with an exit status has said why, and would again.
  if (!(up || keeps_place) || exit.signal == 0 || cause_ || decided_ ||
      restarts_ == limits_.max_restarts) {
    return false;
  }
  ++restarts_;
  return true;
}

void Supervision::ChildEnded(const std::string& name, const ChildExit& exit,
                             const std::string& last_line, const std::string& log, absl::Time now) {
  const bool up = phase_.has_value() && *phase_ != GATHERING;
  const bool wrong_usage = exit.signal == 0 && exit.code == kWrongUsage;
  if (up && !exit.clean() && !wrong_usage && name.rfind("worker-", 0) == 0 && !cause_ &&
      lost_workers_ < limits_.spare_workers) {
    ++lost_workers_;
    return;
  }
  const bool has_ended = phase_ == FINISHED || phase_ == FAILED;
  if (exit.clean() && name.rfind("worker-", 0) == 0 && !has_ended && phase_ != SAVING) {
    // It was sent away, or the job has finished and the next status says so.
    worker_has_gone_ = true;
    ended_.push_back({name, exit, last_line, log});
    return;
  }
  if (up && !has_ended && !exit.clean() && !wrong_usage && exit.code != kPreempted &&
      name == "coordinator" && limits_.autonomy > absl::ZeroDuration()) {
    coordinator_ = Ended{name, exit, last_line, log};
    away_since_ = now;
    return;
  }
  first_end_ = std::min(first_end_, now);
  ended_.push_back({name, exit, last_line, log});
  if (decided_ || cause_ || exit.clean()) return;
  if (!up || wrong_usage) decided_ = Of(ended_.back());
}

absl::Duration Supervision::GraceOf(int signal) const {
  return signal == SIGUSR1 ? limits_.warning_grace : limits_.preemption_grace;
}

bool Supervision::Signalled(int signal, absl::Time now) {
  if (decided_ || cause_) return false;
  const bool trains = phase_ == TRAINING || phase_ == SAVING;
  const bool again = signal == SIGTERM && std::exchange(terminated_, true);
  if (again && limits_.one_sigterm) return false;
  if (signal == SIGINT || again || !trains || GraceOf(signal) == absl::ZeroDuration()) {
    Failed(signal == SIGINT ? kFailed : kPreempted,
           absl::StrCat("interrupted by ", SignalName(signal)));
    return false;
  }
  const absl::Time until = now + GraceOf(signal);
  if (until >= preempted_until_) return false;
  preempted_until_ = until;
  if (preempted_by_.empty()) preempted_by_ = SignalName(signal);
  return true;
}

void Supervision::Failed(ExitCode code, const std::string& why) {
  if (!decided_) decided_ = Outcome{code, why};
}

bool Supervision::MustEnd(const std::vector<std::string>& running, absl::Time now) {
  if (running.empty()) return false;
  if (decided_) return true;
  if (now >= preempted_until_ + kAfterGrace) {
    if (!cause_) Failed(kPreempted, absl::StrCat("interrupted by ", preempted_by_));
    return true;
  }
  if (!phase_ && now - started_ >= limits_.first_answer) {
    Failed(kFailed, absl::StrCat("the coordinator has not answered within ",
                                 absl::FormatDuration(limits_.first_answer), " of its start"));
    return true;
  }
  const bool workers_run = std::any_of(running.begin(), running.end(), [](const std::string& name) {
    return name.rfind("worker-", 0) == 0;
  });
  const bool has_ended = phase_ == FINISHED || phase_ == FAILED;
  if (worker_has_gone_ && (has_ended || !workers_run)) first_end_ = std::min(first_end_, now);
  const absl::Time end = std::min(first_end_, away_since_ + limits_.autonomy) + limits_.patience;
  if (now < end) return false;
  // The first cause, where there is one, stays what is told; this is for a job that had finished.
  const bool all_clean = std::all_of(ended_.begin(), ended_.end(),
                                     [](const Ended& child) { return child.exit.clean(); });
  if (all_clean && !ended_.empty() && !cause_) {
    Failed(kFailed, absl::StrCat(absl::StrJoin(running, ", "), " had to be ended: still there ",
                                 absl::FormatDuration(limits_.patience), " after ",
                                 ended_.front().name, " had finished"));
  }
  return true;
}

Supervision::Outcome Supervision::Of(const Ended& child) {
  if (child.exit.signal == 0 && !child.last_line.empty()) {
    return {CodeOf(child.exit), child.last_line};
  }
  return {CodeOf(child.exit),
          absl::StrCat(child.name, " ", Describe(child.exit), "; its log is ", child.log)};
}

Supervision::Outcome Supervision::Result() const {
  if (cause_) {
    const bool wrong_usage = std::any_of(ended_.begin(), ended_.end(), [](const Ended& child) {
      return child.exit.signal == 0 && child.exit.code == kWrongUsage;
    });
    return {cause_->preempted() ? kPreempted : wrong_usage ? kWrongUsage : kFailed, cause_->text()};
  }
  if (decided_) return *decided_;
  const Ended* told = nullptr;
  for (const Ended& child : ended_) {
    if (child.exit.clean()) continue;
    if (told == nullptr) {
      told = &child;
      continue;
    }
    // One that was killed knows nothing.
    const auto rank = [](const Ended& e) { return std::pair(e.exit.signal != 0, Rank(e.name)); };
    if (rank(child) < rank(*told)) told = &child;
  }
  // It knows of nothing that came after it, but where nobody says anything it was the first.
  if (told == nullptr && ended_.empty() && coordinator_) told = &*coordinator_;
  return told == nullptr ? Outcome{} : Of(*told);
}

}  // namespace parley
