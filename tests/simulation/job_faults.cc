// What goes wrong in a simulated job.
#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/job/job_file.h"
#include "tests/simulation/job_simulation.h"

namespace parley {

bool JobSimulation::MayHit(Worker* worker) {
  return worker->doing != kJoining || !std::exchange(worker->hit_while_joining, true);
}

Process& JobSimulation::PickProcess() {
  if (target_ != nullptr) return *target_->process;
  return *processes_[world_.Pick(processes_.size())];
}

JobSimulation::Worker* JobSimulation::PickWorker() {
  if (target_ != nullptr) return target_;
  std::vector<Worker*> living;
  for (const auto& worker : workers_) {
    if (worker->process->alive()) living.push_back(worker.get());
  }
  return living.empty() ? nullptr : living[world_.Pick(living.size())];
}

void JobSimulation::PlanFaults() {
  const absl::Duration liveness = Liveness(options_.job);
  Plan(options_.stops, kStopped, [this, liveness] {
    Process& process = PickProcess();
    if (!process.alive()) return;
    ++happened_["stopped"];
    Met(kStopped, FindWorker(process.address()));
    // Less than the lease, with the heartbeat that may be late before.
    process.Stop(world_.Between(absl::ZeroDuration(), liveness / 4));
  });
  Plan(options_.long_stops, kStoppedLong, [this, liveness] {
    Worker* const worker = PickWorker();
    if (worker == nullptr) return;
    if (!MayHit(worker)) return;
    ++happened_["stopped past its lease"];
    Met(kStoppedLong, worker);
    worker->process->Stop(world_.Between(liveness, 3 * liveness));
  });
  Plan(options_.kills, kKilled, [this, liveness] {
    Worker* const worker = PickWorker();
    if (worker == nullptr) return;
    ++happened_["killed"];
    Met(kKilled, worker);
    worker->process->Kill();
    worker->end = absl::CancelledError("killed");
    world_.At(world_.now() + world_.Between(absl::ZeroDuration(), 2 * liveness), [this] {
      if (HasEnded()) return;
      ++happened_["restarted"];
      Met(kStarted, nullptr);
      StartWorker(static_cast<int>(workers_.size()));
    });
  });
  Plan(options_.cuts, kCut, [this, liveness] {
    // Those between shards matter most, and are the fewest.
    const bool shards = world_.Chance(0.25);
    const Process& a = shards ? *shards_.front()->process : PickProcess();
    const Process& b =
        shards ? *shards_.back()->process : *processes_[world_.Pick(processes_.size())];
    ++happened_["cut"];
    const Worker* const worker = FindWorker(a.address());
    Met(kCut, worker != nullptr ? worker : FindWorker(b.address()));
    network_.Cut(a.address(), b.address(), world_.Between(absl::ZeroDuration(), liveness / 4));
  });
  Plan(options_.isolations, kIsolated, [this, liveness] {
    Worker* const worker = PickWorker();
    if (worker == nullptr) return;
    if (!MayHit(worker)) return;
    ++happened_["isolated"];
    Met(kIsolated, worker);
    const absl::Duration how_long = world_.Between(liveness, 3 * liveness);
    CutOff(worker->process->address(), how_long);
  });
  PlanShardFaults();
  PlanScaling();
  PlanCoordinatorFaults();
}

void JobSimulation::PlanScaling() {
  Plan(options_.scalings, kScaled, [this] { Scale(target_); });
}

void JobSimulation::Scale(Worker* target) {
  CoordinatorProcess* const ruler = Ruler();
  if (ruler == nullptr || ruler->process()->stopped()) {
    if (world_.now() - start_ > absl::Seconds(1)) return;
    return world_.At(world_.now() + absl::Milliseconds(10), [this, target] { Scale(target); });
  }
  const Phase phase = CurrentPhase();
  if (phase != GATHERING && phase != TRAINING) return;
  Met(kScaled, target);
  const uint32_t most = options_.job.cluster().workers() + 2;
  if (world_.Chance(0.5)) {
    return SetWorkers(*ruler, 1 + static_cast<uint32_t>(world_.Pick(most)));
  }
  uint32_t ordinal = static_cast<uint32_t>(world_.Pick(most));
  const std::vector<Member> members =
      ruler->core().Read([](const CoordinatorCore& core) { return core.Members(); });
  for (const Member& member : members) {
    if (target != nullptr && member.address() == target->process->address()) {
      ordinal = member.ordinal();
    }
  }
  Drain(*ruler, ordinal);
}

void JobSimulation::Drain(CoordinatorProcess& ruler, uint32_t ordinal) {
  DrainRequest request;
  request.set_role(WORKER);
  request.set_ordinal(ordinal);
  ruler.service().Drain(request, absl::InfiniteFuture(), [this](absl::StatusOr<DrainReply> reply) {
    ++happened_[reply.ok() ? "one drained" : "not drained"];
    if (reply.ok() || absl::IsFailedPrecondition(reply.status()) ||
        absl::IsNotFound(reply.status()) || absl::IsUnavailable(reply.status())) {
      return;
    }
    Broken(absl::StrCat("Drain is answered ", reply.status().ToString()));
  });
}

void JobSimulation::SetWorkers(CoordinatorProcess& ruler, uint32_t workers) {
  SetWorkersRequest request;
  request.set_workers(workers);
  ruler.service().SetWorkers(
      request, absl::InfiniteFuture(), [this, workers](absl::StatusOr<SetWorkersReply> reply) {
        if (!reply.ok()) {
          ++happened_["not scaled"];
          if (absl::IsFailedPrecondition(reply.status()) || absl::IsUnavailable(reply.status())) {
            return;
          }
          return Broken(absl::StrCat("SetWorkers is answered ", reply.status().ToString()));
        }
        ++happened_[workers > reply->before() ? "scaled up" : "scaled down"];
        // The operator starts those that are missing.
        for (uint32_t more = reply->here(); more < workers; ++more) {
          world_.At(world_.now() + world_.Between(absl::ZeroDuration(), absl::Seconds(2)), [this] {
            if (!HasEnded()) StartWorker(static_cast<int>(workers_.size()));
          });
        }
      });
}

void JobSimulation::PlanShardFaults() {
  const absl::Duration liveness = Liveness(options_.job);
  Plan(options_.shard_kills, kShardKilled, [this, liveness] {
    std::vector<Shard*> living;
    for (const auto& shard : shards_) {
      if (shard->process->alive() && !shard->killed) living.push_back(shard.get());
    }
    // Before there is something to go back to, a lost shard ends the job.
    const CoordinatorState recorded = Recorded();
    if (living.empty() || recorded.checkpoint().whole_folder().empty() || HasEnded()) return;
    Shard& shard = *living[world_.Pick(living.size())];
    ++happened_["shard killed"];
    Met(kShardKilled, nullptr);
    shard.killed = true;
    shard.process->Kill();
    const bool there = world_.Chance(0.5);
    world_.At(world_.now() + world_.Between(absl::ZeroDuration(), 2 * liveness),
              [this, there, address = shard.process->address()] {
                if (HasEnded()) return;
                ++happened_[there ? "shard back at its address" : "shard back elsewhere"];
                Met(kShardStarted, nullptr);
                const int number = static_cast<int>(shards_.size());
                int port = 1000 + number;
                if (there) (void)absl::SimpleAtoi(address.substr(address.find(':') + 1), &port);
                StartShard(absl::StrCat("shard-again-", number), port);
              });
  });
}

void JobSimulation::CutOff(const std::string& address, absl::Duration how_long) {
  cut_off_[address] = world_.now() + how_long;
  for (const auto& other : processes_) network_.Cut(address, other->address(), how_long);
}

void JobSimulation::PlanCoordinatorFaults() {
  const absl::Duration liveness = Liveness(options_.job);
  // All of them in a row must fit into the autonomy of the members, each with the liveness that a
  // successor waits.
  const absl::Duration away = liveness;
  Plan(options_.coordinator_kills, kCoordinatorKilled, [this, away] {
    CoordinatorProcess* const ruler = Ruler();
    if (ruler == nullptr || restart_is_due_) return;
    ++happened_["coordinator killed"];
    Met(kCoordinatorKilled, nullptr);
    restart_is_due_ = true;
    ruler->process()->Kill();
    if (world_.Chance(0.5)) {
      ++happened_["its machine crashed"];
      files_.Restart(world_.random()());
    }
    world_.At(world_.now() + world_.Between(absl::ZeroDuration(), away), [this] {
      restart_is_due_ = false;
      if (!NeedsCoordinator()) return;
      StartCoordinator(world_.Chance(0.5) ? "coordinator restarted at its address"
                                          : "coordinator restarted elsewhere");
    });
  });
  Plan(options_.coordinator_stops, kCoordinatorStopped, [this, liveness] {
    CoordinatorProcess* const ruler = Ruler();
    if (ruler == nullptr || ruler->process()->stopped()) return;
    ++happened_["coordinator stopped"];
    Met(kCoordinatorStopped, nullptr);
    const absl::Duration how_long = world_.Between(liveness / 2, 2 * liveness);
    ruler->process()->Stop(how_long);
    if (world_.Chance(0.3)) return;
    world_.At(world_.now() + world_.Between(absl::ZeroDuration(), liveness), [this] {
      if (HasEnded()) return;
      Met(kRival, nullptr);
      StartCoordinator("another coordinator started");
    });
  });
  Plan(options_.coordinator_rivals, kRival, [this] {
    if (HasEnded()) return;
    Met(kRival, nullptr);
    StartCoordinator("another coordinator started");
  });
  Plan(options_.coordinator_cuts, kCoordinatorCutOff, [this, liveness] {
    CoordinatorProcess* const ruler = Ruler();
    // While members still gather, one that hears nobody ends the job after a lease.
    if (ruler == nullptr || !Recorded().has_view()) return;
    ++happened_["coordinator cut off"];
    Met(kCoordinatorCutOff, nullptr);
    const absl::Duration how_long = world_.Between(liveness / 2, 2 * liveness);
    CutOff(ruler->process()->address(), how_long);
  });
  Plan(options_.disk_faults, kDiskFails, [this] {
    ++happened_["disk failed"];
    Met(kDiskFails, nullptr);
    MemoryFileSystem& memory = files_.memory();
    for (uint64_t failing = 1 + world_.Pick(20); failing != 0; --failing) {
      memory.SetFault(memory.operations() + 1 + world_.Pick(40),
                      world_.Chance(0.5) ? MemoryFileSystem::Fault::kFails
                                         : MemoryFileSystem::Fault::kLostReply);
    }
  });
}

}  // namespace parley
