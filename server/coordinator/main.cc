// parley-coordinator: the coordinator of one job as a process.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/timer_thread.h"
#include "common/clock/steady_now.h"
#include "common/daemon/daemon.h"
#include "common/daemon/last_moment.h"
#include "common/daemon/signals.h"
#include "common/file_system.h"
#include "common/job/job_file.h"
#include "proto/coordinator.pb.h"
#include "server/coordinator/await_rule_or_signal.h"
#include "server/coordinator/checkpoint_files.h"
#include "server/coordinator/core_options.h"
#include "server/coordinator/job_directory.h"
#include "server/coordinator/job_end.h"
#include "server/coordinator/job_log.h"
#include "server/coordinator/job_start.h"
#include "server/coordinator/locked_coordinator.h"
#include "server/coordinator/log_writer.h"
#include "server/coordinator/record_times.h"
#include "server/coordinator/reporter.h"
#include "server/coordinator/service.h"
#include "server/coordinator/targets.h"
#include "server/coordinator/ticker.h"

namespace parley {
namespace {

ExitCode CodeOf(const absl::Status& no_rule) {
  switch (no_rule.code()) {
    case absl::StatusCode::kCancelled:
      return kPreempted;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kUnavailable:
      return kFailed;
    default:
      return kWrongUsage;
  }
}

// How long one that goes waits for what its threads do with files.
constexpr absl::Duration kLastWord = absl::Seconds(5);

// How long the status can still be asked for when everybody has gone.
constexpr absl::Duration kLastStatus = absl::Seconds(1);

// What is left for the end when the time of a job that was told to end is over: Slurm kills 5 s
// after the default, and MayExit takes up to one of them.
constexpr absl::Duration kMayExit = absl::Seconds(1);
constexpr absl::Duration kAfterPreemption = absl::Milliseconds(2500);

// How long a disk may take for one thing, where nobody is told to end.
constexpr absl::Duration kSlowDisk = absl::Minutes(1);

// How long the writer may take for the last record, where the main thread hangs with another file.
constexpr absl::Duration kLastRecord = absl::Milliseconds(500);

// How often it is told how far the job is: the history has a line for each step that takes longer.
constexpr absl::Duration kReport = absl::Milliseconds(250);

// `as_scaled`: with as many workers as an earlier run of the same job wanted at its end.
CoordinatorCore::Options OptionsOf(const JobConfig& job, JobStart start, const JobLog& log,
                                   bool as_scaled) {
  CoordinatorCore::Options options = CoreOptions(job);
  options.checkpoint_directory = std::move(start.checkpoint_directory);
  options.start = std::move(start.from);
  if (as_scaled && log.last() && log.last()->state().has_wanted_workers() &&
      log.last()->state().job_fingerprint() == options.fingerprint) {
    options.wanted_workers = log.last()->state().wanted_workers();
  }
  return options;
}

// The coordinator, not yet open, goes on from the newest record.
absl::Status TakeOver(Daemon& daemon, const JobDirectory& directory, const JobLog& log,
                      LockedCoordinator& coordinator) {
  const CoordinatorRecord& last = *log.last();
  const CoordinatorState state = FromRecordTimes(last.state(), WallAheadOfSteady(), SteadyNow());
  if (auto status = coordinator.Restore(state); !status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat("record ", last.number(), " in ", directory.log_directory(),
                                     ": ", status.message()));
  }
  daemon.log().Info("takes over from an earlier coordinator",
                    {{"generation", absl::StrCat(last.generation())},
                     {"address", last.address()},
                     {"phase", Phase_Name(last.state().phase())},
                     {"step", absl::StrCat(last.state().progress().at().step())}});
  return absl::OkStatus();
}

// What the job's directory says, beside the log.
struct DirectorySays {
  std::atomic<bool> is_named = false;  // in the address file, by main's thread
  bool is_stopped = false;  // JobDirectory::WriteStopped; the log writer's, once there is one
};

// How the states are recorded, and the files beside the log kept as they are to be. After Serve;
// `directory` and `says` must outlive the writer.
LogWriter::Options WritingOf(Daemon& daemon, JobDirectory& directory, DirectorySays& says) {
  LogWriter::Options writing;
  writing.timers = std::make_shared<TimerThread>();
  writing.liveness = Liveness(daemon.job());
  writing.log = &daemon.log();
  writing.wall_ahead = WallAheadOfSteady;
  writing.on_still_ruling = [&directory, &says, address = daemon.address()] {
    if (!says.is_named) return;
    // One that was stopped between taking the rule and writing its address may have overwritten it.
    if (auto named = directory.ReadAddress(); named.ok() && *named != address) {
      directory.WriteAddress(address).IgnoreError();  // again after a while
    }
  };
  writing.before_record = [&directory, &says](const CoordinatorState& state) {
    if (state.stopped() == says.is_stopped) return absl::OkStatus();
    const absl::Status written = directory.WriteStopped(state.stopped());
    if (written.ok()) says.is_stopped = state.stopped();
    return written;
  };
  return writing;
}

absl::Duration TickOf(const JobConfig& job) { return Liveness(job) / 20; }

// How long one that may go has for all that it does with files, End and what comes before it. A
// disk may be slow, and old checkpoints large; but who is told to end has no time for that.
absl::Duration TimeToEnd(const JobConfig& job, const LockedCoordinator& coordinator) {
  const auto [told, by] = coordinator.Read([](const CoordinatorCore& core) {
    return std::pair(core.cause() && core.cause()->preempted(), core.preemption_end());
  });
  const absl::Duration patience = told ? Liveness(job) : std::min(StallTimeout(job), kSlowDisk);
  const absl::Duration left = std::max(by - SteadyNow(), absl::ZeroDuration());
  return std::min(kLastStatus + patience + kLastWord, left + kAfterPreemption);
}

// How long one that was told to end has in all, in whatever phase the job is.
absl::Duration TimeFromSignal(const JobConfig& job, absl::Duration grace) {
  return grace == absl::ZeroDuration() ? kLastStatus + Liveness(job) + kLastWord
                                       : grace + kMayExit + kAfterPreemption;
}

// Before main's thread may hang with a file: who is told to end goes all the same.
void FollowSignals(Daemon& daemon, LockedCoordinator& coordinator, LastMoment& last_moment) {
  daemon.OnSignal([&](int signal) {
    const std::string reason = absl::StrCat("preempted by ", SignalName(signal));
    if (signal == SIGINT) return coordinator.FailItself(reason);
    const JobConfig& job = daemon.job();
    const absl::Duration grace = signal == SIGUSR1 ? WarningGrace(job) : PreemptionGrace(job);
    last_moment.SetIn(TimeFromSignal(job, grace));
    coordinator.PreemptItself(reason, grace);
  });
}

// A job that has failed has told them so; they go by themselves.
void TellWhoIsNotWaitedFor(Daemon& daemon, const LockedCoordinator& coordinator) {
  const auto [phase, who] = coordinator.Read([](const CoordinatorCore& core) {
    return std::pair(core.phase(), core.StillThere(SteadyNow()));
  });
  if (phase != FINISHED || who.empty()) return;
  daemon.log().Warning(
      "the job has finished, and these have not left since, though they are heard of: they are "
      "waited for no longer, and end when they hear nothing more of this coordinator",
      {{"members", absl::StrJoin(who, "; ")}});
}

// Until the job is over and everybody has gone, or another coordinator rules.
void RunJob(Daemon& daemon, FileSystem& files, Reporter& reporter, LockedCoordinator& coordinator) {
  while (true) {
    reporter.Report(coordinator);
    if (coordinator.Read([](const auto& core) { return core.MayExit(SteadyNow()); })) {
      reporter.Report(coordinator);  // the end, if it has come since
      TellWhoIsNotWaitedFor(daemon, coordinator);
      break;
    }
    if (!coordinator.lost().ok()) break;
    coordinator.DoFileWork([&](FileWork& work) {
      absl::Status done = Perform(files, work);
      const bool removes =
          work.kind == FileWork::Kind::kRemoveOld || work.kind == FileWork::Kind::kAbandon;
      if (removes && !done.ok()) {
        daemon.log().Warning("an old checkpoint could not be removed",
                             {{"error", std::string(done.message())}});
      }
      return done;
    });
    coordinator.AwaitChange(std::min(TickOf(daemon.job()), kReport));
  }
  daemon.OnSignal([](int) {});
}

// How the job has ended.
JobEnd EndOf(const LockedCoordinator& coordinator) {
  const auto [cause, phase] = coordinator.Read(
      [](const CoordinatorCore& core) { return std::pair(core.cause(), core.phase()); });
  if (cause) return {cause->preempted() ? kPreempted : kFailed, cause->text()};
  if (phase == FINISHED) return {};
  return {kFailed, "this coordinator ends before its job"};
}

// After RunJob, where this coordinator still rules: the end is told to whoever asks late, and is
// recorded; then the writer ends, and the server. Returns the exit code.
int End(Daemon& daemon, JobDirectory& directory, LockedCoordinator& coordinator,
        std::unique_ptr<LogWriter>& writer, std::atomic<bool>& writer_goes,
        LastMoment& last_moment) {
  daemon.server().SetServing(false);
  // Members have been told through Watch; who polls the status (`parley run`) sees the end here.
  absl::SleepFor(kLastStatus);
  daemon.TellWaits(nullptr);
  coordinator.Close();
  if (auto recorded = coordinator.AwaitRecorded(Liveness(daemon.job())); !recorded.ok()) {
    // Another one has taken over meanwhile, and ends the job.
    if (auto lost = coordinator.lost(); !lost.ok()) return daemon.Exit(kFailed, lost);
    daemon.log().Warning(
        "the log does not say that the job is over: the next coordinator in this "
        "directory will wait for its members once more");
  }
  last_moment.SetIn(kLastWord);
  const auto cause = coordinator.Read([](const CoordinatorCore& core) { return core.cause(); });
  // Prometheus follows it no more, and calls nobody. One that has failed stays: its processes are
  // missed.
  if (!cause || cause->preempted())
    directory.WriteTargets(TargetsJson("", "", "", {})).IgnoreError();
  writer_goes = true;
  writer.reset();
  daemon.server().Shutdown(absl::Seconds(1));
  directory.RemoveAddress(daemon.address());
  if (!cause) {
    for (uint64_t version : coordinator.Read(
             [](const CoordinatorCore& core) { return core.evaluations().Incomplete(); })) {
      daemon.log().Warning("an evaluation is incomplete: the worker that had a part of it was lost",
                           {{"version", absl::StrCat(version)}});
    }
  }
  const JobEnd end = EndOf(coordinator);
  return daemon.Exit(end.code, end.text);
}

int Main(int argc, char** argv) {
  CLI::App app("Coordinates one job: who takes part, where each slice lies, and how the job ends.",
               "parley-coordinator");
  DaemonFlags flags;
  std::string out;
  bool resume = false;
  bool as_scaled = false;
  bool stands_by = false;
  AddDaemonFlags(app, flags, /*with_coordinator=*/false);
  app.add_option(
         "--out", out,
         "Directory of the job: coordinator.address, targets.json, history.jsonl, checkpoints")
      ->required();
  app.add_flag(
      "--resume", resume,
      "Where that directory has a whole checkpoint of an earlier run, start from the newest "
      "one in place of checkpoint.start_from");
  app.add_flag("--as_scaled", as_scaled,
               "Where that directory is of an earlier run, want as many workers as that one did at "
               "its end (`parley scale`, `parley drain`), in place of cluster.workers");
  app.add_flag("--stand_by", stands_by,
               "Where another coordinator of the job answers, wait until it has gone");
  if (auto code = ParseCommandLine(app, argc, argv)) return *code;

  const std::unique_ptr<FileSystem> files = PosixFileSystem();
  // These outlive the daemon, whose server calls them.
  std::unique_ptr<LockedCoordinator> coordinator;
  std::unique_ptr<CoordinatorService> service;
  Daemon daemon(COORDINATOR, flags);
  if (auto status = daemon.LoadJob(); !status.ok()) return daemon.Exit(kWrongUsage, status);
  const JobConfig& job = daemon.job();

  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(out, error).lexically_normal();
  if (error) return daemon.Exit(kWrongUsage, absl::StrCat("--out=", out, ": ", error.message()));
  if (auto status = JobDirectory::CheckName(path.string()); !status.ok()) {
    return daemon.Exit(kWrongUsage, absl::StrCat("--out: ", status.message()));
  }
  JobDirectory directory(*files, path.string());
  const auto prepare = [&] {
    const absl::Status status = directory.Prepare();
    return status.ok() ? status
                       : absl::Status(status.code(), absl::StrCat("cannot write to --out=", out,
                                                                  ": ", status.message()));
  };
  if (!files->Exists(path.string())) {
    if (auto status = prepare(); !status.ok()) return daemon.Exit(kWrongUsage, status);
  }
  if (auto status = daemon.TakeCredentials(path.string()); !status.ok()) {
    return daemon.Exit(kWrongUsage, status);
  }
  bool stood_by = false;
  auto log = AwaitRuleOrSignal(daemon, *files, directory, stands_by, &stood_by);
  if (!log.ok()) return daemon.Exit(CodeOf(log.status()), log.status());
  const bool goes_on = log->last() && !log->last()->state().over();
  // Another run of it would wait for members that have ended with the job.
  if (stands_by && log->last()) {
    if (auto end = EndedMeanwhile(log->last()->state(), JobFingerprint(job), stood_by)) {
      daemon.log().Info("the job is over already", {{"ends_as_it_did", end->text}});
      return daemon.Exit(end->code, end->text);
    }
  }
  // What one that trains has started from may be gone by now.
  const bool has_started = goes_on && log->last()->state().phase() != GATHERING;
  auto start = CheckJobStart(*files, job, path.string(),
                             {.goes_on = goes_on, .has_started = has_started, .resume = resume});
  if (!start.ok()) return daemon.Exit(kWrongUsage, start.status());
  if (auto status = prepare(); !status.ok()) return daemon.Exit(kWrongUsage, status);

  coordinator = std::make_unique<LockedCoordinator>(
      OptionsOf(job, *std::move(start), *log, as_scaled), SteadyNow);
  if (goes_on) {
    if (auto status = TakeOver(daemon, directory, *log, *coordinator); !status.ok()) {
      return daemon.Exit(kWrongUsage, status);
    }
  }
  service = std::make_unique<CoordinatorService>(*coordinator, Liveness(job));
  if (auto status = daemon.Serve({service.get()}); !status.ok()) {
    return daemon.Exit(kWrongUsage, status);
  }
  // Until it has taken the rule it answers nobody but to say so.
  daemon.server().SetServing(false);
  const std::string address = daemon.address();
  const CoordinatorState first =
      coordinator->Read([](const CoordinatorCore& core) { return core.DurableState(); });
  const auto generation = log->Take(address, ToRecordTimes(first, WallAheadOfSteady()),
                                    SteadyNow() + WallAheadOfSteady());
  if (!generation.ok()) {
    return daemon.Exit(absl::IsAborted(generation.status()) ? kFailed : kWrongUsage,
                       generation.status());
  }
  DirectorySays says;
  // Of an earlier run in this directory, say.
  says.is_stopped = coordinator->Read([](const auto& core) { return core.stopped(); });
  if (auto status = directory.WriteStopped(says.is_stopped); !status.ok()) {
    return daemon.Exit(kWrongUsage, status);
  }
  // This thread and the writer's may be in the kernel with a file for as long as its server is
  // away.
  std::atomic<bool> writer_goes = false;  // and takes the rule along, in order
  LastMoment last_moment([&] {
    const absl::Status lost = coordinator->lost();
    const bool is_over = lost.ok() || writer_goes;
    if (lost.ok()) {
      coordinator->Close();
      coordinator->AwaitRecorded(kLastRecord).IgnoreError();
    }
    const JobEnd end = is_over ? EndOf(*coordinator) : JobEnd{kFailed, std::string(lost.message())};
    std::_Exit(daemon.Exit(end.code, end.text));
  });
  auto writer = std::make_unique<LogWriter>(*std::move(log), *coordinator,
                                            WritingOf(daemon, directory, says));
  coordinator->Open(*generation, address);
  // Time goes on whatever the main thread does with files. This thread touches none, not the log of
  // this process either, which often lies beside them; so the one below does that.
  auto ticker = std::make_unique<Ticker>(TickOf(job), [&, lost = false, over = false]() mutable {
    coordinator->Tick();
    if (!lost && !coordinator->lost().ok()) {
      lost = true;
      last_moment.SetIn(kLastWord);
    }
    if (!over && coordinator->Read([](const auto& core) { return core.MayExit(SteadyNow()); })) {
      over = true;
      last_moment.SetIn(TimeToEnd(job, *coordinator));
    }
  });
  auto writers_ticker = std::make_unique<Ticker>(TickOf(job), [&] { writer->TellIfSlow(); });
  daemon.server().SetServing(true);
  daemon.TellWaits([&](WaitsReply& reply) {
    coordinator->Read([&](const CoordinatorCore& core) {
      reply.set_step(core.progress().step());
      for (Wait& wait : core.Waits(SteadyNow())) *reply.add_waits() = std::move(wait);
    });
  });
  FollowSignals(daemon, *coordinator, last_moment);
  Reporter reporter(daemon, *files, directory);
  reporter.Report(*coordinator);
  // The last of the files: who sees it finds the others too.
  if (auto status = directory.WriteAddress(address); !status.ok()) {
    return daemon.Exit(kWrongUsage, status);
  }
  says.is_named = true;
  daemon.log().Info("the job can be joined", {{"job", job.name()},
                                              {"generation", absl::StrCat(*generation)},
                                              {"address_file", directory.address_file()}});

  RunJob(daemon, *files, reporter, *coordinator);
  ticker.reset();
  // The ticker may not have seen it yet. All that follows may wait for a disk.
  last_moment.SetIn(coordinator->lost().ok() ? TimeToEnd(job, *coordinator) : kLastWord);
  writers_ticker.reset();
  if (auto lost = coordinator->lost(); !lost.ok()) {
    writer.reset();
    return daemon.Exit(kFailed, lost);
  }
  return End(daemon, directory, *coordinator, writer, writer_goes, last_moment);
}

}  // namespace
}  // namespace parley

int main(int argc, char** argv) { return parley::Main(argc, argv); }
