// parley-shard: one parameter shard of a job.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/grpc_connector.h"
#include "client/membership.h"
#include "common/daemon/command_line.h"
#include "common/daemon/daemon.h"
#include "common/direct/direct_loops.h"
#include "common/direct/direct_server.h"
#include "common/file_system.h"
#include "common/job/job_file.h"
#include "common/loop_threads.h"
#include "common/rpc/rpc_observer.h"
#include "common/rpc/server.h"
#include "common/shared_memory/local_door.h"
#include "common/shared_memory/segment_heap.h"
#include "common/usable_cores.h"
#include "common/worker_threads.h"
#include "server/parameter_shard/direct_methods.h"
#include "server/parameter_shard/local_guest.h"
#include "server/parameter_shard/locked_shard.h"
#include "server/parameter_shard/service.h"
#include "server/parameter_shard/shard_process.h"

namespace parley {
namespace {

// More do not help: the memory is what the optimizer waits for, and a worker that goes on meanwhile
// needs cores too. (Of 16 cores 12 do Adam's step of ResNet-50 in 7.8 ms, 15 in 7.5, 8 in 9.3.)
constexpr size_t kMostThreads = 12;

// For direct connections that are not encrypted: two receive what a link of 50 Gbit/s brings.
constexpr size_t kPlainDirectThreads = 2;

constexpr size_t kSegmentBytes = 256 << 20;

// Once it is served: its addresses are known then.
Membership::Options MembershipOptions(Daemon& daemon) {
  Membership::Options options;
  options.job = daemon.job().name();
  options.job_fingerprint = JobFingerprint(daemon.job());
  options.role = SHARD;
  options.coordinator = daemon.flags().coordinator;
  options.address = daemon.address();
  options.metrics_address = daemon.metrics().address();
  options.liveness = Liveness(daemon.job());
  options.autonomy = Autonomy(daemon.job());
  options.join_timeout = daemon.flags().join_timeout;
  options.coordinator_news = daemon.coordinator_news();
  // It may have come for one whose lease is not over yet.
  options.wait_for_place = daemon.job().max_restarts() != 0;
  return options;
}

// Where calls to the shard come in: by gRPC, over direct connections, and from workers on this
// machine through shared memory. It owns the service, the direct server and the local door, and
// tells the daemon's metrics of the calls; the gRPC server is the daemon's, and must be shut down
// before this goes.
class Entrances {
 public:
  // Listens for direct connections; but nobody hears of them before Open. The
  // daemon, the shard and the heap, in which its values lie, must outlive this.
  Entrances(Daemon& daemon, LockedShard& shard, const SegmentHeap& values, size_t cores)
      : daemon_(daemon),
        shard_(shard),
        values_(values),
        direct_calls_(daemon.metrics().Counter("parley_direct_calls_total",
                                               "Calls that came over direct connections.")),
        local_calls_(daemon.metrics().Counter("parley_local_calls_total",
                                              "Calls that came through shared memory.")),
        direct_(StartDirect(LoopsFor(daemon.credentials(), kPlainDirectThreads, cores))),
        service_(&shard, direct_.ok() ? (*direct_)->Found() : FindDirectReply()) {}

  // The daemon serves from now on, and its address is known.
  absl::Status Open() {
    if (absl::Status status = daemon_.Serve({&service_}); !status.ok()) return status;
    // Before any worker hears of this address.
    auto door = LocalGuest::OpenDoor({daemon_.address(), &shard_, &values_, Counts(local_calls_)});
    if (door.ok()) {
      door_ = *std::move(door);
    } else {
      daemon_.log().Info("workers on this machine have to use gRPC",
                         {{"why", std::string(door.status().message())}});
    }
    if (!direct_.ok()) {
      daemon_.log().Info("workers on other machines have to use gRPC",
                         {{"why", std::string(direct_.status().message())}});
    }
    return absl::OkStatus();
  }

  // Nothing comes in any more, but for gRPC.
  void Close() {
    door_.reset();
    if (direct_.ok()) direct_->reset();
  }

 private:
  // The daemon's, which counts the calls here, too.
  RpcObserver Counts(prometheus::Counter& calls) {
    return [&calls, observer = daemon_.rpc_observer()](const std::string& method, int code,
                                                       absl::Duration duration) {
      calls.Increment();
      observer(method, code, duration);
    };
  }

  absl::StatusOr<std::unique_ptr<DirectServer>> StartDirect(size_t threads) {
    return DirectServer::Start(HostOf(daemon_.flags().listen), threads,
                               DirectShardMethods(&shard_, Counts(direct_calls_)),
                               {daemon_.credentials(), daemon_.refused()});
  }

  Daemon& daemon_;
  LockedShard& shard_;
  const SegmentHeap& values_;
  prometheus::Counter& direct_calls_;
  prometheus::Counter& local_calls_;
  absl::StatusOr<std::unique_ptr<DirectServer>> direct_;
  ShardService service_;
  std::unique_ptr<LocalDoor> door_;  // nullptr: not open
};

int Main(int argc, char** argv) {
  CLI::App app("Holds a share of a job's parameters and applies the optimizer.", "parley-shard");
  DaemonFlags flags;
  size_t most_cores = 0;
  AddDaemonFlags(app, flags, /*with_coordinator=*/true);
  app.add_option("--threads", most_cores,
                 "Use no more cores than this, where the system would leave it more (default: all)")
      ->check(CLI::Range(1, 4096));
  if (const std::optional<int> code = ParseCommandLine(app, argc, argv)) return *code;

  Daemon daemon(SHARD, flags);
  if (absl::Status status = daemon.LoadJob(); !status.ok()) {
    return daemon.Exit(kWrongUsage, status);
  }
  std::unique_ptr<Connector> connector = MakeGrpcConnector(/*direct=*/true, daemon.credentials());
  const std::unique_ptr<FileSystem> files = PosixFileSystem();
  // While the optimizer runs, the workers of a synchronous step wait for it, or are at its first
  // slices: most cores are free.
  auto cores = static_cast<size_t>(UsableCores());
  if (most_cores != 0) cores = std::min(cores, most_cores);
  const size_t updating = std::min(cores, kMostThreads);
  daemon.log().Info("applies the optimizer", {{"threads", absl::StrCat(updating)}});
  LoopThreads threads(updating - 1);
  // Values that workers on this machine read where they lie. The system gives memory when it is
  // touched: large segments cost nothing.
  SegmentHeap values(kSegmentBytes);
  WorkerThreads later(1);
  const bool ahead = daemon.job().consistency().sync().update_ahead();
  WorkerThreads ahead_threads(ahead ? updating : 0);
  ShardResources resources;
  resources.parallel = [&](size_t count, const std::function<void(size_t)>& body) {
    threads.Run(count, body);
  };
  resources.memory = &values;
  resources.later = [&](std::function<void()> task) { later.Run(std::move(task)); };
  resources.ahead = [&](std::function<void()> task) { ahead_threads.Run(std::move(task)); };
  ShardProcess::End end;
  {
    ShardProcess::Surroundings around;
    around.job = daemon.job();
    around.log = &daemon.log();
    around.metrics = &daemon.metrics();
    around.connector = connector.get();
    around.files = files.get();
    around.resources = std::move(resources);
    around.leave = [&](const ShardProcess::End& last) {
      std::_Exit(daemon.Exit(last.code, last.last_line));
    };
    ShardProcess process(std::move(around));
    Entrances entrances(daemon, process.shard(), values, cores);
    if (absl::Status status = entrances.Open(); !status.ok()) {
      return daemon.Exit(kWrongUsage, status);
    }
    // Nobody knows of this shard yet, so it can simply go.
    daemon.OnSignal([&](int) {
      daemon.Exit(kPreempted, "told to end before it had joined the job");
      std::_Exit(kPreempted);
    });
    daemon.TellWaits([&](WaitsReply& reply) { process.TellWaits(reply); });
    end = process.Run([&](Membership::Listener listener) {
      auto membership =
          Membership::Join(MembershipOptions(daemon), *connector, std::move(listener));
      daemon.OnSignal([&](int signal) { process.OnSignal(signal); });
      if (membership.ok()) daemon.Joined((*membership)->ordinal());
      return membership;
    });
    // Of a failed job nothing is parked any more, and those that ask still hear the cause.
    if (end.code != kFinished) daemon.server().Shutdown(absl::Milliseconds(500));
    daemon.OnSignal(nullptr);
    daemon.TellWaits(nullptr);
    process.Stop();
    // No call and no answer may reach the process when it goes.
    daemon.server().Shutdown(absl::Milliseconds(500));
    entrances.Close();
    connector.reset();
  }
  return daemon.Exit(end.code, end.last_line);
}

}  // namespace
}  // namespace parley

int main(int argc, char** argv) { return parley::Main(argc, argv); }
