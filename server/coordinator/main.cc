// parley-coordinator: the coordinator of one job as a process.
#include <grpcpp/client_context.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/daemon/daemon.h"
#include "common/file_system.h"
#include "common/job/job_file.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "proto/coordinator.grpc.pb.h"
#include "server/coordinator/checkpoint_files.h"
#include "server/coordinator/coordinator_metrics.h"
#include "server/coordinator/in_process.h"
#include "server/coordinator/job_directory.h"
#include "server/coordinator/job_start.h"
#include "server/coordinator/service.h"
#include "server/coordinator/targets.h"
#include "server/coordinator/ticker.h"
#include "server/coordinator/view_change.h"

namespace parley {
namespace {

// Whether a coordinator of the job answers at an address, within `patience`. A blocking call, on
// main's thread before the server is up: where the last channel of the callback API goes on gRPC's
// own thread, as it may after a callback, gRPC 1.51 aborts.
absl::Status AskForJob(const std::string& job, absl::Duration patience,
                       const std::string& address) {
  GetStatusRequest request;
  request.set_job(job);
  GetStatusReply reply;
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + patience));
  const auto stub = Coordinator::NewStub(MakeChannel(address));
  return FromGrpc(stub->GetStatus(&context, request, &reply), address);
}

// How long the status can still be asked for when everybody has gone.
constexpr absl::Duration kLastStatus = absl::Seconds(1);

std::string SignalName(int signal) {
  return signal == SIGTERM ? "SIGTERM" : signal == SIGUSR1 ? "SIGUSR1" : "SIGINT";
}

// What goes on, for the log, the metrics and targets.json. On main's thread.
class Reporter {
 public:
  Reporter(Daemon& daemon, JobDirectory& directory)
      : daemon_(daemon), directory_(directory), metrics_(daemon.metrics()) {}

  void Report(const InProcessCoordinator& coordinator) {
    metrics_.Update(coordinator.Read(CoordinatorMetrics::Read));
    const auto [members, phase, epoch, contributors] =
        coordinator.Read([](const CoordinatorCore& core) {
          return std::tuple(core.Members(), core.phase(), core.view_epoch(),
                            LiveContributors(core.view()));
        });
    std::map<uint64_t, std::string> present;
    for (const Member& member : members) {
      present[member.id()] = MemberName(member.role(), member.ordinal());
      if (known_.count(member.id()) != 0) continue;
      daemon_.log().Info("joined", {{"member", MemberName(member.role(), member.ordinal())},
                                    {"address", member.address()},
                                    {"pid", absl::StrCat(member.pid())}});
    }
    for (const auto& [id, name] : known_) {
      if (present.count(id) != 0) continue;
      if (phase == FINISHED || phase == FAILED) {
        daemon_.log().Info("left", {{"member", name}});
      } else {
        daemon_.log().Warning("lost", {{"member", name}, {"id", absl::StrCat(id)}});
      }
    }
    if (present != known_ || !written_) WriteTargets(members);
    known_ = std::move(present);
    if (epoch != epoch_) {
      daemon_.log().Info("view", {{"view_epoch", absl::StrCat(epoch)},
                                  {"contributors", absl::StrCat(contributors)}});
    }
    epoch_ = epoch;
    if (phase != phase_) daemon_.log().Info("phase", {{"phase", Phase_Name(phase)}});
    phase_ = phase;
  }

 private:
  void WriteTargets(const std::vector<Member>& members) {
    const absl::Status written = directory_.WriteTargets(
        TargetsJson(daemon_.job().name(), daemon_.metrics().address(), members));
    if (!written.ok() && !failed_to_write_) {
      daemon_.log().Warning("targets.json could not be written; Prometheus will not find all",
                            {{"error", std::string(written.message())}});
    }
    written_ = written.ok();
    failed_to_write_ = !written.ok();
  }

  Daemon& daemon_;
  JobDirectory& directory_;
  CoordinatorMetrics metrics_;
  std::map<uint64_t, std::string> known_;  // names by id
  uint64_t epoch_ = 0;
  Phase phase_ = PHASE_UNSPECIFIED;
  bool written_ = false;
  bool failed_to_write_ = false;
};

// Until the job is over and everybody has gone.
void RunJob(Daemon& daemon, FileSystem& files, Reporter& reporter,
            InProcessCoordinator& coordinator) {
  const absl::Duration period = Liveness(daemon.job()) / 20;
  Ticker ticker(period, [&] { coordinator.Tick(); });
  daemon.OnSignal([&](int signal) {
    coordinator.FailItself(absl::StrCat("preempted by ", SignalName(signal)), /*preempted=*/true);
  });
  while (true) {
    reporter.Report(coordinator);
    if (coordinator.Read([](const auto& core) { return core.MayExit(absl::Now()); })) break;
    coordinator.DoFileWork([&](const FileWork& work) { return Perform(files, work); });
    coordinator.AwaitChange(period);
  }
  daemon.OnSignal([](int) {});
}

int Main(int argc, char** argv) {
  CLI::App app("Coordinates one job: who takes part, where each slice lies, and how the job ends.",
               "parley-coordinator");
  DaemonFlags flags;
  std::string out;
  AddDaemonFlags(app, flags, /*with_coordinator=*/false);
  app.add_option("--out", out,
                 "Directory of the job: coordinator.address, targets.json, checkpoints")
      ->required();
  if (auto code = ParseCommandLine(app, argc, argv)) return *code;

  const std::unique_ptr<FileSystem> files = PosixFileSystem();
  // These outlive the daemon, whose server calls them.
  std::unique_ptr<InProcessCoordinator> coordinator;
  std::unique_ptr<CoordinatorService> service;
  Daemon daemon(COORDINATOR, flags);
  if (auto status = daemon.LoadJob(); !status.ok()) return daemon.Exit(kWrongUsage, status);
  const JobConfig& job = daemon.job();
  const absl::Duration liveness = Liveness(job);

  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(out, error).lexically_normal();
  if (error) return daemon.Exit(kWrongUsage, absl::StrCat("--out=", out, ": ", error.message()));
  const auto ask = [&](const std::string& address) {
    return AskForJob(job.name(), liveness, address);
  };
  auto start = CheckJobStart(*files, job, path.string(), ask);
  if (!start.ok()) {
    return daemon.Exit(absl::IsAlreadyExists(start.status()) ? kFailed : kWrongUsage,
                       start.status());
  }
  JobDirectory directory(*files, path.string(), ask);

  CoordinatorCore::Options options;
  options.job = job;
  options.fingerprint = JobFingerprint(job);
  options.liveness = liveness;
  options.stall_timeout = StallTimeout(job);
  options.job_directory = path.string();
  options.checkpoint_directory = std::move(start->checkpoint_directory);
  options.start = std::move(start->from);
  if (auto status = directory.Prepare(); !status.ok()) {
    return daemon.Exit(kWrongUsage, absl::StrCat("cannot write to --out=", out, ": ",
                                                 std::string(status.message())));
  }

  coordinator =
      std::make_unique<InProcessCoordinator>(std::move(options), [] { return absl::Now(); });
  service = std::make_unique<CoordinatorService>(*coordinator, liveness);
  if (auto status = daemon.Serve({service.get()}); !status.ok()) {
    return daemon.Exit(kWrongUsage, status);
  }
  const std::string address = daemon.address();
  // It answers already: whoever finds the record can ask here.
  const auto generation = directory.Claim(address);
  if (!generation.ok()) return daemon.Exit(kFailed, generation.status());
  coordinator->Open(*generation, address);
  daemon.TellWaits([&](WaitsReply& reply) {
    coordinator->Read([&](const CoordinatorCore& core) {
      reply.set_step(core.progress().step());
      for (Wait& wait : core.Waits(absl::Now())) *reply.add_waits() = std::move(wait);
    });
  });
  Reporter reporter(daemon, directory);
  reporter.Report(*coordinator);
  // The last of the files: who sees it finds the others too.
  if (auto status = directory.WriteAddress(address); !status.ok()) {
    return daemon.Exit(kWrongUsage, status);
  }
  daemon.log().Info("the job can be joined", {{"job", job.name()},
                                              {"generation", absl::StrCat(*generation)},
                                              {"address_file", directory.address_file()}});

  RunJob(daemon, *files, reporter, *coordinator);

  // Members have been told through Watch; who polls the status (`parley run`) sees the end here.
  absl::SleepFor(kLastStatus);
  daemon.TellWaits(nullptr);
  coordinator->Close();
  daemon.server().Shutdown(absl::Seconds(1));
  directory.RemoveAddress(address);
  const auto cause = coordinator->Read([](const CoordinatorCore& core) { return core.cause(); });
  if (!cause) {
    for (uint64_t version : coordinator->Read(
             [](const CoordinatorCore& core) { return core.evaluations().Incomplete(); })) {
      daemon.log().Warning("an evaluation is incomplete: the worker that had a part of it was lost",
                           {{"version", absl::StrCat(version)}});
    }
    return daemon.Exit(kFinished, "");
  }
  return daemon.Exit(cause->preempted() ? kPreempted : kFailed, cause->text());
}

}  // namespace
}  // namespace parley

int main(int argc, char** argv) { return parley::Main(argc, argv); }
