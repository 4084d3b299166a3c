// A job of 1,000 workers and 100 shards, in virtual time: that it keeps its promises, and what its
// coordinator has to do.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "tests/simulation/coordinator_load.h"
#include "tests/simulation/job_simulation.h"
#include "tests/simulation/simulated_job.h"

namespace parley {
namespace {

constexpr uint32_t kWorkers = 1000;
constexpr uint32_t kShards = 100;
constexpr uint64_t kSteps = 4;
constexpr absl::Duration kCompute = absl::Seconds(20);  // of a step, at most

// Each shard has a tensor.
JobSimulation::Options Large(uint32_t shards) {
  JobSimulation::Options options;
  options.job = SimulatedJob(absl::StrCat(
      "consistency { sync { reduction: SUM } } optimizer { sgd { rate: 1 } } steps: ", kSteps,
      " cluster { workers: ", kWorkers, " shards: ", shards, " min_workers: ", kWorkers - 100,
      " }"));
  options.model = SimulatedModel(std::vector<int64_t>(shards, 1));
  options.samples = 2 * 2 * kWorkers;  // two steps
  options.compute = kCompute;
  options.most_events = 200'000'000;
  return options;
}

void Show(const char* what, const JobSimulation& simulation, const CoordinatorLoad& load) {
  std::printf("%s: %d steps in %s of virtual time, %d calls, %d events\n%s", what,
              static_cast<int>(simulation.steps()),
              absl::FormatDuration(absl::Trunc(simulation.took(), absl::Milliseconds(1))).c_str(),
              static_cast<int>(simulation.network().calls), static_cast<int>(simulation.events()),
              load.Table(simulation.took()).c_str());
}

TEST(ScaleSimulationTest, TheCoordinatorHasNoPartInAStep) {
  CoordinatorLoad load;
  JobSimulation::Options options = Large(kShards);
  options.all_evaluations_whole = true;
  options.coordinator_load = &load;
  JobSimulation simulation(options);
  EXPECT_EQ(absl::StrJoin(simulation.Run(), "\n"), "");
  EXPECT_EQ(simulation.steps(), kSteps);
  Show("without faults", simulation, load);
  // One leader reports each step; all others only say that they live and ask for news.
  const uint64_t members = kWorkers + kShards;
  EXPECT_LE(load.Of("ReportVerdictsRequest").calls, kSteps);
  EXPECT_EQ(load.Of("JoinRequest").calls, members);
  EXPECT_EQ(load.Of("ReportEvaluationRequest").calls,
            options.test_samples * static_cast<uint64_t>(simulation.evaluations_ordered()));
  const double heartbeats = absl::FDivDuration(simulation.took(), absl::Seconds(2.5));
  EXPECT_LE(load.Of("HeartbeatRequest").calls, members * (1 + heartbeats));
}

void SufferAll(JobSimulation::Options& options) {
  options.job.set_autonomy("180s");
  options.network.lose_request = 0.0001;
  options.network.lose_reply = 0.0001;
  options.network.duplicate = 0.0001;
  options.network.slow = 0.0001;
  options.clock_drift = 0.01;
  options.start_within = absl::Seconds(10);
  options.stops = 5;
  options.aim = false;
}

void ExpectAllStepsInSpiteOf(const std::vector<const char*>& faults, JobSimulation::Options options,
                             const char* name) {
  CoordinatorLoad load;
  options.coordinator_load = &load;
  JobSimulation simulation(std::move(options));
  EXPECT_EQ(absl::StrJoin(simulation.Run(), "\n"), "");
  EXPECT_EQ(simulation.steps(), kSteps);
  EXPECT_FALSE(simulation.failed());
  Show(name, simulation, load);
  for (const char* fault : faults) EXPECT_EQ(simulation.happened().count(fault), 1u) << fault;
}

TEST(ScaleSimulationTest, ComesInTenSecondsAndLosesWorkersAndItsCoordinator) {
  JobSimulation::Options options = Large(kShards);
  SufferAll(options);
  options.faults_within = absl::Seconds(15);
  options.kills = 5;
  options.coordinator_kills = 1;
  ExpectAllStepsInSpiteOf({"killed", "stopped", "coordinator killed", "took over"}, options,
                          "with faults");
}

// For minutes; a lost shard takes all back to the last checkpoint. 64 more shards stand where a job
// with a pipeline has stages: to the coordinator they are the same.
TEST(ScaleSimulationTest, LosesOnePercentOfItsMembersAMinute) {
  JobSimulation::Options options = Large(kShards + 64);
  SufferAll(options);
  options.job.mutable_checkpoint()->set_every_steps(1);
  options.job.set_max_restarts(100);
  // Of 1,164 members 12 a minute, for longer than the job takes: half of all in the first part.
  options.faults_within = absl::Minutes(5);
  options.kills = 102;
  options.shard_kills = 18;
  options.coordinator_kills = 4;
  ExpectAllStepsInSpiteOf({"killed", "shard killed", "stopped", "coordinator killed", "took over"},
                          options, "one percent a minute");
}

}  // namespace
}  // namespace parley

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  // Of a tenth of all time; the tests with real threads have it.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  return RUN_ALL_TESTS();
}
