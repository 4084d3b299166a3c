// What goes wrong in a simulated job.
#include <algorithm>
#include <utility>

#include "common/job/job_file.h"
#include "tests/simulation/job_simulation.h"

namespace parley {

void JobSimulation::Plan(int count, std::function<void()> fault) {
  for (int i = 0; i < count; ++i) {
    world_.At(world_.now() + world_.Between(absl::ZeroDuration(), options_.faults_within), fault);
  }
}

JobSimulation::Worker* JobSimulation::PickWorker() {
  std::vector<Worker*> living;
  for (const auto& worker : workers_) {
    if (worker->process->alive()) living.push_back(worker.get());
  }
  return living.empty() ? nullptr : living[world_.Pick(living.size())];
}

void JobSimulation::PlanFaults() {
  const absl::Duration liveness = Liveness(options_.job);
  Plan(options_.stops, [this, liveness] {
    Process& process = *processes_[world_.Pick(processes_.size())];
    if (!process.alive()) return;
    ++happened_["stopped"];
    // Less than the lease, with the heartbeat that may be late before.
    process.Stop(world_.Between(absl::ZeroDuration(), liveness / 4));
  });
  Plan(options_.long_stops, [this, liveness] {
    Worker* const worker = PickWorker();
    if (worker == nullptr) return;
    ++happened_["stopped past its lease"];
    worker->process->Stop(world_.Between(liveness, 3 * liveness));
  });
  Plan(options_.kills, [this, liveness] {
    Worker* const worker = PickWorker();
    if (worker == nullptr) return;
    ++happened_["killed"];
    worker->process->Kill();
    worker->end = absl::CancelledError("killed");
    world_.At(world_.now() + world_.Between(absl::ZeroDuration(), 2 * liveness), [this] {
      if (HasEnded()) return;
      ++happened_["restarted"];
      StartWorker(static_cast<int>(workers_.size()));
    });
  });
  Plan(options_.cuts, [this, liveness] {
    const Process& a = *processes_[world_.Pick(processes_.size())];
    const Process& b = *processes_[world_.Pick(processes_.size())];
    ++happened_["cut"];
    network_.Cut(a.address(), b.address(), world_.Between(absl::ZeroDuration(), liveness / 4));
  });
  Plan(options_.isolations, [this, liveness] {
    Worker* const worker = PickWorker();
    if (worker == nullptr) return;
    ++happened_["isolated"];
    const absl::Duration how_long = world_.Between(liveness, 3 * liveness);
    CutOff(worker->process->address(), how_long);
  });
  PlanCoordinatorFaults();
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
  Plan(options_.coordinator_kills, [this, away] {
    CoordinatorProcess* const ruler = Ruler();
    if (ruler == nullptr || restart_is_due_) return;
    ++happened_["coordinator killed"];
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
  Plan(options_.coordinator_stops, [this, liveness] {
    CoordinatorProcess* const ruler = Ruler();
    if (ruler == nullptr || ruler->process()->stopped()) return;
    ++happened_["coordinator stopped"];
    const absl::Duration how_long = world_.Between(liveness / 2, 2 * liveness);
    ruler->process()->Stop(how_long);
    if (world_.Chance(0.3)) return;
    world_.At(world_.now() + world_.Between(absl::ZeroDuration(), liveness), [this] {
      if (!HasEnded()) StartCoordinator("another coordinator started");
    });
  });
  Plan(options_.coordinator_rivals, [this] {
    if (!HasEnded()) StartCoordinator("another coordinator started");
  });
  Plan(options_.coordinator_cuts, [this, liveness] {
    CoordinatorProcess* const ruler = Ruler();
    // While members still gather, one that hears nobody ends the job after a lease.
    if (ruler == nullptr || !Recorded().has_view()) return;
    ++happened_["coordinator cut off"];
    const absl::Duration how_long = world_.Between(liveness / 2, 2 * liveness);
    CutOff(ruler->process()->address(), how_long);
  });
  Plan(options_.disk_faults, [this] {
    ++happened_["disk failed"];
    MemoryFileSystem& memory = files_.memory();
    for (uint64_t failing = 1 + world_.Pick(20); failing != 0; --failing) {
      memory.SetFault(memory.operations() + 1 + world_.Pick(40),
                      world_.Chance(0.5) ? MemoryFileSystem::Fault::kFails
                                         : MemoryFileSystem::Fault::kLostReply);
    }
  });
}

}  // namespace parley
