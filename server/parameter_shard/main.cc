// parley-shard: one parameter shard of a job.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/time/time.h"
#include "client/grpc_connector.h"
#include "client/membership.h"
#include "common/daemon/command_line.h"
#include "common/daemon/daemon.h"
#include "common/direct/direct_server.h"
#include "common/file_system.h"
#include "common/job/job_file.h"
#include "common/loop_threads.h"
#include "common/rpc/server.h"
#include "common/shared_memory/local_door.h"
#include "common/shared_memory/segment_heap.h"
#include "common/worker_threads.h"
#include "server/parameter_shard/direct_methods.h"
#include "server/parameter_shard/local_guest.h"
#include "server/parameter_shard/service.h"
#include "server/parameter_shard/shard_process.h"

namespace parley {
namespace {

// More do not help: the memory is what the optimizer waits for, and a worker that goes on meanwhile
// needs cores too. (Of 16 cores 12 do Adam's step of ResNet-50 in 7.8 ms, 15 in 7.5, 8 in 9.3.)
constexpr size_t kMostThreads = 12;

// For direct connections: two receive what a link of 50 Gbit/s brings.
constexpr size_t kMostDirectThreads = 2;

constexpr size_t kSegmentBytes = 256 << 20;

// Once it is served: its addresses are known then.
Membership::Options MembershipOptions(Daemon& daemon, absl::Duration join_timeout) {
  Membership::Options options;
  options.job = daemon.job().name();
  options.job_fingerprint = JobFingerprint(daemon.job());
  options.role = SHARD;
  options.coordinator = daemon.flags().coordinator;
  options.address = daemon.address();
  options.metrics_address = daemon.metrics().address();
  options.liveness = Liveness(daemon.job());
  options.autonomy = Autonomy(daemon.job());
  options.preemption_grace = PreemptionGrace(daemon.job());
  options.join_timeout = join_timeout;
  // It may have come for one whose lease is not over yet.
  options.wait_for_place = daemon.job().max_restarts() != 0;
  return options;
}

}  // namespace
}  // namespace parley

int main(int argc, char** argv) {
  using namespace parley;
  CLI::App app("Holds a share of a job's parameters and applies the optimizer.", "parley-shard");
  DaemonFlags flags;
  AddDaemonFlags(app, flags, /*with_coordinator=*/true);
  if (const std::optional<int> code = ParseCommandLine(app, argc, argv)) return *code;

  Daemon daemon(SHARD, flags);
  absl::Duration join = absl::ZeroDuration();
  if (!absl::ParseDuration(flags.join_timeout, &join) || join <= absl::ZeroDuration()) {
    return daemon.Exit(kWrongUsage,
                       "--join_timeout: '" + flags.join_timeout + "' is no duration such as 60s");
  }
  if (absl::Status status = daemon.LoadJob(); !status.ok()) {
    return daemon.Exit(kWrongUsage, status);
  }
  std::unique_ptr<Connector> connector = MakeGrpcConnector(/*direct=*/true, daemon.credentials());
  const std::unique_ptr<FileSystem> files = PosixFileSystem();
  // While the optimizer runs, the workers of a synchronous step wait for it, or are at its first
  // slices: most cores are free.
  const size_t cores = std::max(1U, std::thread::hardware_concurrency());
  LoopThreads threads(std::min(cores, kMostThreads) - 1);
  // Values that workers on this machine read where they lie. The system gives memory when it is
  // touched: large segments cost nothing.
  SegmentHeap values(kSegmentBytes);
  WorkerThreads later(1);
  const bool ahead = daemon.job().consistency().sync().update_ahead();
  WorkerThreads ahead_threads(ahead ? std::min(cores, kMostThreads) : 0);
  ShardProcess::End end;
  {
    ShardProcess process(
        {daemon.job(),
         &daemon.log(),
         &daemon.metrics(),
         connector.get(),
         files.get(),
         RealRuntime(),
         {[&](size_t count, const std::function<void(size_t)>& body) { threads.Run(count, body); },
          &values, [&](std::function<void()> task) { later.Run(std::move(task)); },
          ShardResources().later_from,
          [&](std::function<void()> task) { ahead_threads.Run(std::move(task)); }}});
    const auto observe = [&](const std::string& method, int code, absl::Duration duration) {
      daemon.metrics().ObserveRpc(method, code, duration);
    };
    prometheus::Counter& direct_calls = daemon.metrics().Counter(
        "parley_direct_calls_total", "Calls that came over direct connections.");
    prometheus::Counter& local_calls = daemon.metrics().Counter(
        "parley_local_calls_total", "Calls that came through shared memory.");
    absl::StatusOr<std::unique_ptr<DirectServer>> direct =
        absl::FailedPreconditionError("the job's connections are TLS");
    if (daemon.credentials() == nullptr || !daemon.credentials()->tls()) {
      direct = DirectServer::Start(
          HostOf(flags.listen), std::min<size_t>(cores, kMostDirectThreads),
          DirectShardMethods(&process.shard(),
                             [&](const std::string& method, int code, absl::Duration duration) {
                               direct_calls.Increment();
                               observe(method, code, duration);
                             }));
    }
    ShardService service(&process.shard(), direct.ok() ? (*direct)->Found() : FindDirectReply());
    if (absl::Status status = daemon.Serve({&service}); !status.ok()) {
      return daemon.Exit(kWrongUsage, status);
    }
    // Before any worker hears of this address.
    absl::StatusOr<std::unique_ptr<LocalDoor>> door =
        LocalGuest::OpenDoor({daemon.address(), &process.shard(), &values,
                              [&](const std::string& method, int code, absl::Duration duration) {
                                local_calls.Increment();
                                observe(method, code, duration);
                              }});
    if (!door.ok()) {
      daemon.log().Info("workers on this machine have to use gRPC",
                        {{"why", std::string(door.status().message())}});
    }
    if (!direct.ok()) {
      daemon.log().Info("workers on other machines have to use gRPC",
                        {{"why", std::string(direct.status().message())}});
    }
    // Nobody knows of this shard yet, so it can simply go.
    daemon.OnSignal([&](int) {
      daemon.Exit(kPreempted, "told to end before it had joined the job");
      std::_Exit(kPreempted);
    });
    daemon.TellWaits([&](WaitsReply& reply) { process.TellWaits(reply); });
    end = process.Run([&](Membership::Listener listener) {
      auto membership =
          Membership::Join(MembershipOptions(daemon, join), *connector, std::move(listener));
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
    if (door.ok()) door->reset();
    if (direct.ok()) direct->reset();
    connector.reset();
  }
  return daemon.Exit(end.code, end.last_line);
}
