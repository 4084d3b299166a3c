// What a simulated job is doing when a fault meets it, and faults that wait for that.
#include <algorithm>
#include <utility>

#include "common/job/consistency.h"
#include "common/job/job_file.h"
#include "tests/simulation/job_simulation.h"

namespace parley {
namespace {

// An aimed fault waits so long for its state.
constexpr absl::Duration kPatience = absl::Seconds(60);

bool LosesWorkers(const JobSimulation::Options& options) {
  return options.kills + options.long_stops + options.isolations > 0;
}

// While it trains.
bool HasCheckpoints(const JobConfig& job) {
  return job.checkpoint().every_steps() != 0 || !job.checkpoint().every().empty();
}

// Then a worker is killed only now and then, too seldom for all that can come of it to be met.
bool LosesWorkersSeldom(const JobSimulation::Options& options) {
  return options.coordinator_kills + options.shard_kills > 0;
}

}  // namespace

std::vector<std::string_view> JobSimulation::FaultsOf(const Options& options) {
  std::vector<std::string_view> faults = {kRequestLost, kReplyLost, kDuplicated, kLate, kOvertaken};
  const auto add = [&](int count, std::initializer_list<std::string_view> more) {
    if (count > 0) faults.insert(faults.end(), more);
  };
  add(options.cuts + options.isolations, {kCutOff});
  add(options.stops, {kStopped});
  add(options.cuts, {kCut});
  add(options.long_stops, {kStoppedLong});
  add(LosesWorkersSeldom(options) ? 0 : options.kills, {kKilled, kStarted});
  add(options.isolations, {kIsolated});
  // Few, beside a coordinator that goes, meet too little.
  add(options.scalings > 2 ? options.scalings : 0, {kScaled});
  // One alone meets too little.
  add(options.shard_kills > 1 ? options.shard_kills : 0, {kShardKilled, kShardStarted});
  add(options.coordinator_kills, {kCoordinatorKilled});
  add(options.coordinator_stops, {kCoordinatorStopped});
  add(options.coordinator_rivals, {kRival});
  add(options.coordinator_cuts, {kCoordinatorCutOff});
  add(options.disk_faults, {kDiskFails});
  return faults;
}

std::vector<std::string_view> JobSimulation::StatesOf(const Options& options) {
  std::vector<std::string_view> states = {kBeforeTraining};
  const auto add = [&](bool if_so, std::initializer_list<std::string_view> more) {
    if (if_so) states.insert(states.end(), more);
  };
  const bool clocked = IsClocked(options.job);
  const bool has_backup = options.job.consistency().sync().backup() > 0;
  const bool loses_many = LosesWorkers(options) && !LosesWorkersSeldom(options);
  add(!clocked, {kNobodyComplete, kSomeComplete});
  add(!clocked && options.job.optimizer().clip_norm() > 0, {kClosing});
  add(!clocked, {kDeciding, kPullsParked});
  add(!clocked && loses_many && !has_backup, {kRepeated});
  add(clocked, {kAllAtWork});
  add(ClockBound(options.job).has_value(), {kAtTheBound});
  add(clocked, {kIdle, kBarrier});
  add(loses_many, {kEntersParked});
  add(HasCheckpoints(options.job), {kCheckpoint});
  add(true, {kAfterTraining, kJoining, kPulling, kComputing, kCompleting, kEvaluating, kFinishing});
  return states;
}

std::vector<std::string_view> JobSimulation::States(const Worker* worker) {
  std::vector<std::string_view> states;
  if (worker != nullptr) states.push_back(worker->doing);
  const Phase phase = CurrentPhase();
  if (phase != TRAINING) {
    states.push_back(phase == GATHERING || phase == PREPARING ? kBeforeTraining : kAfterTraining);
    return states;
  }
  const std::string& leader = StepLeader().process->name();
  const std::optional<OpenCalls::State> state = Look(leader);
  if (!state.has_value()) return states;
  const int completes = open_calls_.Count(leader, ShardObserver::Verb::kComplete);
  int pulls = 0;
  bool deciding = false;
  for (const auto& shard : shards_) {
    pulls += open_calls_.Count(shard->process->name(), ShardObserver::Verb::kPull);
    const std::optional<OpenCalls::State> other = Look(shard->process->name());
    deciding |= other.has_value() && other->version != state->version;
  }
  const auto add = [&](bool holds, std::string_view name) {
    if (holds) states.push_back(name);
  };
  add(open_calls_.Count(leader, ShardObserver::Verb::kEnter) > 0, kEntersParked);
  const CoordinatorProcess* const ruler = Ruler();
  add(ruler != nullptr &&
          ruler->core().Read([](const CoordinatorCore& core) { return core.checkpoint().busy(); }),
      kCheckpoint);
  if (IsClocked(options_.job)) {
    add(state->barrier, kBarrier);
    add(pulls > 0 && !state->barrier, kAtTheBound);
    add(completes > 0 && !state->barrier, kIdle);
    add(pulls == 0 && completes == 0, kAllAtWork);
    return states;
  }
  const bool closing = open_calls_.closed() == std::pair(state->version + 1, state->attempt);
  add(closing, kClosing);
  add(!closing && completes == 0, kNobodyComplete);
  add(!closing && completes > 0, kSomeComplete);
  add(deciding, kDeciding);
  add(pulls > 0, kPullsParked);
  add(state->attempt > 0, kRepeated);
  return states;
}

void JobSimulation::Met(std::string_view fault, const Worker* worker) {
  coverage_.Met(fault, States(worker));
}

void JobSimulation::MetMessage(std::string_view fault, const std::string& from,
                               const std::string& to) {
  const Worker* const worker = FindWorker(from);
  Met(fault, worker != nullptr ? worker : FindWorker(to));
}

JobSimulation::Worker* JobSimulation::FindWorker(const std::string& address) {
  for (const auto& worker : workers_) {
    if (worker->process->address() == address) return worker.get();
  }
  return nullptr;
}

void JobSimulation::Plan(int count, std::string_view kind, std::function<void()> fault) {
  std::vector<std::string_view> states;
  for (const std::string_view state : StatesOf(options_)) {
    if (WhyNever(kind, state).empty()) states.push_back(state);
  }
  for (int i = 0; i < count; ++i) {
    // Half of them close together, at the beginning; the others over most of the job's time.
    const absl::Duration within = options_.faults_within * (world_.Chance(0.5) ? 1 : 5);
    const absl::Time when = world_.now() + world_.Between(absl::ZeroDuration(), within);
    if (!options_.aim || world_.Chance(0.5)) {
      world_.At(when, fault);
      continue;
    }
    const std::string_view state = states[world_.Pick(states.size())];
    const bool early = state == kBeforeTraining;
    const bool late = state == kAfterTraining || state == kFinishing;
    world_.At(
        early ? world_.now() + world_.Between(absl::ZeroDuration(), absl::Milliseconds(10)) : when,
        [this, state, late, fault] {
          aimed_.push_back(
              {state, late ? absl::InfiniteFuture() : world_.now() + kPatience, fault});
        });
  }
}

void JobSimulation::FireAimed() {
  if (aimed_.empty()) return;
  // Each fourth event: to look at all shards costs more than many an event.
  if (world_.events_run() % 4 != 0) return;
  const std::vector<std::string_view> states = States(nullptr);
  for (size_t i = 0; i < aimed_.size(); ++i) {
    const std::string_view state = aimed_[i].state;
    const auto worker = std::find_if(workers_.begin(), workers_.end(), [&](const auto& each) {
      return each->process->alive() && each->doing == state;
    });
    const bool met =
        worker != workers_.end() || std::find(states.begin(), states.end(), state) != states.end();
    if (!met && world_.now() < aimed_[i].until) continue;
    const std::function<void()> fault = std::move(aimed_[i].fault);
    aimed_.erase(aimed_.begin() + static_cast<std::ptrdiff_t>(i));
    target_ = worker == workers_.end() ? nullptr : worker->get();
    fault();
    target_ = nullptr;
    return;  // the job may be in another state now
  }
}

}  // namespace parley
