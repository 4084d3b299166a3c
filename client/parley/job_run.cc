#include "client/parley/job_run.h"

#include <signal.h>
#include <stdio.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/parley/log_tail.h"
#include "common/clock/steady_now.h"
#include "common/daemon/daemon.h"
#include "common/daemon/signals.h"
#include "common/job/job_file.h"

namespace parley {
namespace {

// Between SIGINT and SIGKILL.
constexpr absl::Duration kGrace = absl::Seconds(3);

Supervision::Limits LimitsFor(const JobConfig& job, bool one_sigterm) {
  // A starting coordinator may ask for `liveness` whether there is another one.
  return {.patience = 3 * Liveness(job),
          .first_answer = absl::Minutes(1) + 2 * Liveness(job),
          .spare_workers = job.cluster().workers() - job.cluster().min_workers(),
          .autonomy = Autonomy(job),
          .max_restarts = job.max_restarts(),
          .waits_for_workers = job.consistency().sync().lost_worker() == WAIT,
          .preemption_grace = PreemptionGrace(job),
          .warning_grace = WarningGrace(job),
          .one_sigterm = one_sigterm};
}

}  // namespace

JobRun::JobRun(const JobConfig& job, Programs programs, const Directory& directory,
               FileSystem& files, Connector& connector, SignalInbox& signals,
               ProgressDisplay& display)
    : job_(job),
      programs_(std::move(programs)),
      out_(directory.out),
      resume_(directory.resume),
      signals_(signals),
      display_(display),
      poller_(connector, files, absl::StrCat("file:", out_, "/coordinator.address")),
      supervision_(LimitsFor(job, directory.one_sigterm), SteadyNow()) {}

JobRun::Result JobRun::Run() {
  auto started = Start("coordinator", programs_.coordinator);
  if (!started.ok()) supervision_.Failed(kFailed, std::string(started.message()));

  bool killed = false;
  while (true) {
    const absl::Time now = SteadyNow();
    if (auto status = poller_.Take()) See(*status, now);
    for (const size_t i : children_.Reap()) Ended(i, now);
    if (children_.AllEnded()) break;
    if (supervision_.MustEnd(Running(), now)) {
      killed = children_.End(kGrace, signals_);
      break;
    }
    poller_.Ask(now);
    if (const int signal = signals_.Wait(PollInterval())) {
      if (supervision_.Signalled(signal, SteadyNow())) Preempt(signal);
    }
  }
  if (auto status = poller_.Take()) See(*status, SteadyNow());
  display_.End();
  return {supervision_.Result(), status_, killed};
}

void JobRun::Ended(size_t child, absl::Time now) {
  const Children::Child ended = children_.all()[child];
  if (!ended.exit->clean() && !IsMissed(ended)) {
    display_.Say(absl::StrCat(ended.name, " ", Describe(*ended.exit),
                              "; the job, which had no place for it, goes on; its log is ",
                              ended.log));
    return;
  }
  if (supervision_.Restarts(ended.name, *ended.exit)) {
    display_.Say(absl::StrCat(ended.name, " ", Describe(*ended.exit), "; it is started again (",
                              supervision_.restarts(), " of ", job_.max_restarts(),
                              " restarts); its log was ", ended.log));
    if (auto started = Restart(ended); !started.ok()) {
      supervision_.Failed(kFailed, std::string(started.message()));
    }
    return;
  }
  if (absl::StartsWith(ended.name, "worker-")) {
    // The others hear nothing but that it is silent, and that later.
    if (ended.exit->signal != 0) {
      display_.Say(
          absl::StrCat(ended.name, " ", Describe(*ended.exit), "; its log is ", ended.log));
    }
    if (!ended.exit->clean()) {
      ++lost_workers_;
    } else if (drained_.count(ended.process.pid()) != 0) {
      display_.Say(absl::StrCat(ended.name, " has left, as it was told to; the job goes on"));
    }
  }
  supervision_.ChildEnded(ended.name, *ended.exit, LastLineOfFile(ended.log), ended.log, now);
  if (ended.name == "coordinator" && supervision_.coordinator_is_away()) {
    display_.Say(absl::StrCat("the coordinator ", Describe(*ended.exit),
                              "; the others go on without it for ",
                              absl::FormatDuration(Autonomy(job_)),
                              " at most; to start it again: ", programs_.coordinator,
                              " --job=", out_, "/job.textproto --out=", out_));
  }
}

absl::Status JobRun::Restart(const Children::Child& child) {
  const std::string& program = child.name == "coordinator"              ? programs_.coordinator
                               : absl::StartsWith(child.name, "shard-") ? programs_.shard
                               : absl::StartsWith(child.name, "stage-") ? programs_.stage
                                                                        : programs_.worker;
  const std::string log =
      absl::StrCat(out_, "/", child.name, ".restart-", supervision_.restarts(), ".log");
  return children_.Start(child.name, log, CommandOf(child.name, program));
}

std::vector<std::string> JobRun::CommandOf(const std::string& name,
                                           const std::string& program) const {
  // --one_sigterm: who sends SIGTERM to this process, which hands it on, may have sent it to all of
  // them (Slurm does).
  std::vector<std::string> command = {program, absl::StrCat("--job=", out_, "/job.textproto"),
                                      "--one_sigterm"};
  if (name == "coordinator") {
    command.push_back(absl::StrCat("--out=", out_));
    if (resume_) command.push_back("--resume");
  } else {
    command.push_back(absl::StrCat("--coordinator=file:", out_, "/coordinator.address"));
  }
  return command;
}

void JobRun::Preempt(int signal) {
  display_.Say(absl::StrCat(SignalName(signal), ": the job goes on until a checkpoint is whole, ",
                            absl::FormatDuration(supervision_.GraceOf(signal)), " at most"));
  children_.Signal(signal, [this](const std::string& name) {
    return name == "coordinator" || supervision_.coordinator_is_away();
  });
}

absl::Status JobRun::Start(const std::string& name, const std::string& program) {
  return children_.Start(name, absl::StrCat(out_, "/", name, ".log"), CommandOf(name, program));
}

absl::Status JobRun::StartMembers() {
  members_started_ = true;
  const auto start = [&](const char* role, uint32_t count, const std::string& program) {
    absl::Status started;
    for (uint32_t i = 0; i < count && started.ok(); ++i) {
      started = Start(absl::StrCat(role, "-", i), program);
    }
    return started;
  };
  const Cluster& cluster = job_.cluster();
  absl::Status started = start("shard", cluster.shards(), programs_.shard);
  if (started.ok()) started = start("worker", cluster.workers(), programs_.worker);
  if (!started.ok()) return started;
  return start("stage", cluster.workers() * cluster.stages(), programs_.stage);
}

void JobRun::See(const GetStatusReply& status, absl::Time now) {
  status_ = status;
  const bool was_away = supervision_.coordinator_is_away();
  supervision_.Saw(status);
  if (was_away && !supervision_.coordinator_is_away()) {
    display_.Say(absl::StrCat("a coordinator is back, generation ", status.generation()));
  }
  if (!members_started_ && status.phase() == GATHERING) {
    if (auto started = StartMembers(); !started.ok()) {
      supervision_.Failed(kFailed, std::string(started.message()));
    }
  }
  if (members_started_) FollowWanted(status);
  if (!named_) NameByOrdinal(status);
  display_.Show(status, now);
}

void JobRun::FollowWanted(const GetStatusReply& status) {
  bool is_new = false;
  for (const MemberStatus& member : status.members()) {
    if (member.drained() && member.member().role() == WORKER) {
      is_new = drained_.insert(member.member().pid()).second || is_new;
    }
  }
  const uint32_t wanted = status.wanted_workers();
  if (wanted == 0 || (status.phase() != GATHERING && status.phase() != TRAINING)) return;
  const uint32_t before = wanted_workers_ == 0 ? job_.cluster().workers() : wanted_workers_;
  wanted_workers_ = wanted;
  if (wanted > before) lost_workers_ = 0;  // they are made up for
  if (wanted != before) {
    display_.Say(absl::StrCat("the job wants ", wanted, " workers, not ", before, " any more"));
  }
  // Between two looks one may have been told to go, and another one asked for.
  if (wanted < before || (wanted == before && !is_new)) return;
  const uint32_t here = StayingWorkers() + lost_workers_;
  if (wanted <= here) return;
  if (auto started = StartWorkers(wanted - here, status); !started.ok()) {
    display_.Say(absl::StrCat("no worker could be started: ", started.message()));
  }
}

uint32_t JobRun::StayingWorkers() const {
  uint32_t staying = 0;
  for (const Children::Child& child : children_.all()) {
    staying += !child.exit && absl::StartsWith(child.name, "worker-") &&
               drained_.count(child.process.pid()) == 0;
  }
  return staying;
}

bool JobRun::IsMissed(const Children::Child& ended) const {
  if (!absl::StartsWith(ended.name, "worker-") || status_.phase() != TRAINING) return true;
  if (drained_.count(ended.process.pid()) != 0) return false;
  return std::any_of(
      status_.members().begin(), status_.members().end(),
      [&](const MemberStatus& member) { return member.member().pid() == ended.process.pid(); });
}

absl::Status JobRun::StartWorkers(uint32_t count, const GetStatusReply& status) {
  // The coordinator gives the lowest number that is free.
  std::set<std::string> taken;
  for (const MemberStatus& member : status.members()) {
    taken.insert(MemberName(member.member().role(), member.member().ordinal()));
  }
  for (const std::string& name : Running()) taken.insert(name);
  for (uint32_t ordinal = 0; count != 0; ++ordinal) {
    const std::string name = MemberName(WORKER, ordinal);
    if (!taken.insert(name).second) continue;
    if (auto started =
            children_.Start(name, NewLog(name, Taken::kByAny), CommandOf(name, programs_.worker));
        !started.ok()) {
      return started;
    }
    --count;
  }
  return absl::OkStatus();
}

std::string JobRun::NewLog(const std::string& name, Taken by) const {
  const std::string log = absl::StrCat(out_, "/", name, ".log");
  for (const Children::Child& child : children_.all()) {
    if (child.log != log || (by == Taken::kByEnded && !child.exit)) continue;
    return absl::StrCat(out_, "/", name, ".again-", children_.all().size(), ".log");
  }
  return log;
}

void JobRun::NameByOrdinal(const GetStatusReply& status) {
  std::map<int64_t, std::string> names;  // by pid
  for (const MemberStatus& member : status.members()) {
    names[member.member().pid()] = MemberName(member.member().role(), member.member().ordinal());
  }
  std::map<size_t, std::string> renamed;
  for (size_t i = 0; i < children_.all().size(); ++i) {
    const Children::Child& child = children_.all()[i];
    if (child.name == "coordinator" || child.exit) continue;
    const auto name = names.find(child.process.pid());
    if (name == names.end()) return;  // not all have joined
    if (name->second != child.name) renamed[i] = name->second;
  }
  if (names.empty()) return;
  named_ = true;
  // Two may have to change places.
  for (const auto& [i, name] : renamed) {
    const std::string& log = children_.all()[i].log;
    rename(log.c_str(), absl::StrCat(log, ".moving").c_str());
  }
  for (const auto& [i, name] : renamed) {
    const std::string moving = absl::StrCat(children_.all()[i].log, ".moving");
    const std::string log = NewLog(name, Taken::kByEnded);  // what another process has left stays
    rename(moving.c_str(), log.c_str());
    children_.SetNameAndLog(i, name, log);
  }
}

absl::Duration JobRun::PollInterval() const {
  // Near the start and the end things follow each other fast, and the last status must be seen.
  const bool trains = status_.phase() == TRAINING && status_.step() < status_.total_steps();
  return trains ? absl::Milliseconds(200) : absl::Milliseconds(25);
}

std::vector<std::string> JobRun::Running() const {
  std::vector<std::string> names;
  for (const Children::Child& child : children_.all()) {
    if (!child.exit) names.push_back(child.name);
  }
  return names;
}

}  // namespace parley
