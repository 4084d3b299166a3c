// What the checks of a simulated job see of its processes, and what they found.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/job/consistency.h"
#include "tests/simulation/job_simulation.h"

namespace parley {

uint64_t JobSimulation::faults() const {
  const NetworkCounts& counts = network_.counts();
  uint64_t faults = counts.requests_lost + counts.replies_lost + counts.duplicated + counts.slowed;
  for (const char* what : {"stopped", "stopped past its lease", "killed", "cut", "isolated",
                           "coordinator killed", "shard killed", "coordinator stopped",
                           "coordinator cut off", "another coordinator started"}) {
    const auto found = happened_.find(what);
    if (found != happened_.end()) faults += static_cast<uint64_t>(found->second);
  }
  return faults;
}

JobSimulation::Shard* JobSimulation::FindShard(const std::string& name) {
  for (const auto& shard : shards_) {
    if (shard->process->name() == name) return shard.get();
  }
  return nullptr;
}

JobSimulation::Shard& JobSimulation::StepLeader() {
  for (const auto& shard : shards_) {
    if (shard->core == nullptr || !shard->process->alive()) continue;
    const bool leads = shard->core->Read([](const parley::Shard* core) {
      return core != nullptr && core->routing() != nullptr && core->routing()->is_leader();
    });
    if (leads) return *shard;
  }
  return *shards_.front();
}

std::optional<OpenCalls::State> JobSimulation::Look(const std::string& shard) {
  const Shard* const found = FindShard(shard);
  if (found == nullptr || found->core == nullptr || !found->process->alive()) return std::nullopt;
  return found->core->Read([](const parley::Shard* core) -> std::optional<OpenCalls::State> {
    if (core == nullptr) return std::nullopt;
    OpenCalls::State state;
    state.ready = core->ready();
    state.job_epoch = core->routing() == nullptr ? 0 : core->routing()->view().job_epoch();
    state.version = core->version();
    state.attempt = core->attempt();
    if (core->clock_gate() != nullptr) {
      state.floor = core->clock_gate()->floor();
      state.barrier = core->clock_gate()->barrier().has_value();
    }
    return state;
  });
}

uint32_t JobSimulation::LowestContributor(const std::string& shard) {
  const Shard* const found = FindShard(shard);
  if (found == nullptr || found->core == nullptr) return 0;
  return found->core->Read([](const parley::Shard* core) -> uint32_t {
    if (core == nullptr || core->routing() == nullptr) return 0;
    std::optional<uint32_t> lowest;
    for (const uint32_t contributor : core->routing()->Contributors()) {
      if (core->routing()->SenderOf(contributor, 0) == 0) continue;
      lowest = std::min(lowest.value_or(contributor), contributor);
    }
    return lowest.value_or(0);
  });
}

bool JobSimulation::TakesPart(uint32_t contributor, uint32_t attempt) {
  const auto has_place = [&](const ClusterView& view) {
    return std::any_of(view.contributors().begin(), view.contributors().end(),
                       [&](const Contributor& each) {
                         return each.ordinal() == contributor && each.attempt() == attempt &&
                                each.part_members_size() > 0 && each.part_members(0) != 0;
                       });
  };
  CoordinatorProcess* const ruler = Ruler();
  if (ruler == nullptr) return has_place(Recorded().view());
  return ruler->core().Read([&](const CoordinatorCore& core) { return has_place(core.view()); });
}

Phase JobSimulation::CurrentPhase() {
  if (CoordinatorProcess* const ruler = Ruler()) {
    phase_ = ruler->core().Read([](const CoordinatorCore& core) { return core.phase(); });
  }
  return phase_;
}

void JobSimulation::HearChecks() {
  for (std::string& what : open_calls_.TakeBroken()) Broken(std::move(what));
  for (std::string& what : contributions_.TakeBroken()) Broken(std::move(what));
}

void JobSimulation::CheckCounted(const Worker& worker, const Session& session, const StepPlan& plan,
                                 const Verdict& verdict) {
  for (const Share& share : verdict.shares()) {
    if (share.contributor() != session.ordinal()) continue;
    const bool same = std::equal(share.ranges().begin(), share.ranges().end(), plan.ranges.begin(),
                                 plan.ranges.end(), [](const SampleRange& a, const SampleRange& b) {
                                   return a.begin() == b.begin() && a.end() == b.end();
                                 });
    if (same) return;
    return Broken(absl::StrCat(worker.process->name(), " counts in step ", verdict.step(),
                               " with other samples than it had"));
  }
  Broken(absl::StrCat(worker.process->name(), " is told that step ", verdict.step(),
                      " counts for it, but the verdict does not name it"));
}

}  // namespace parley
