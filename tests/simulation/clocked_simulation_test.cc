// Whole jobs in bounded and async under the same faults as those in sync.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/simulation/simulated_job.h"
#include "tests/simulation/simulation_seeds.h"

namespace parley {
namespace {

JobConfig ClockedJob(const std::string& mode, const std::string& cluster) {
  return SimulatedJob(absl::StrCat("epochs: 3 optimizer { sgd { rate: 1 } } cluster { ", cluster,
                                   " } consistency { ", mode, " }"));
}

constexpr char kBounded[] = "bounded { bound: 1 reduction: SUM }";
constexpr char kAsync[] = "async { reduction: SUM }";

void LoseAShard(JobSimulation::Options& options) {
  options.job.set_max_restarts(100);
  options.shard_kills = 1;
}

TEST(ClockedSimulationTest, WithoutFaultsAJobRunsToItsEnd) {
  for (const char* mode : {kBounded, kAsync}) {
    JobSimulation::Options options;
    options.job = ClockedJob(mode, "workers: 3 shards: 2");
    JobSimulation simulation(options);
    EXPECT_EQ(absl::StrJoin(simulation.Run(), "\n"), "");
    EXPECT_EQ(simulation.steps(), 180u) << "3 epochs of 120 samples, two to a contribution";
  }
}

TEST(ClockedSimulationTest, NoFaultOfTheNetworkChangesASum) {
  const JobConfig bounded = ClockedJob(kBounded, "workers: 3 shards: 2");
  const JobConfig async = ClockedJob(kAsync, "workers: 3 shards: 2");
  RunSeeds([&](uint64_t seed) { return WithNetworkFaults(seed % 2 == 0 ? bounded : async); });
}

TEST(ClockedSimulationTest, WorkersMayDieAndComeBack) {
  const std::string cluster = "workers: 4 shards: 2 min_workers: 1";
  JobConfig bounded = ClockedJob(kBounded, cluster);
  JobConfig async = ClockedJob(kAsync, cluster);
  // A worker that is cut off from all comes back.
  for (JobConfig* job : {&bounded, &async}) job->set_autonomy("60s");
  RunSeeds([&](uint64_t seed) {
    JobSimulation::Options options = WithNetworkFaults(seed % 2 == 0 ? bounded : async);
    options.kills = 2;
    options.long_stops = 1;
    options.isolations = 1;
    if (seed % 5 < 2) LoseAShard(options);
    return options;
  });
}

TEST(ClockedSimulationTest, WorkersAreAddedAndSentAway) {
  const std::string cluster = "workers: 4 shards: 2 min_workers: 1";
  const JobConfig bounded = ClockedJob(kBounded, cluster);
  const JobConfig async = ClockedJob(kAsync, cluster);
  RunSeeds(
      [&](uint64_t seed) {
        JobSimulation::Options options = WithNetworkFaults(seed % 2 == 0 ? bounded : async);
        options.scalings = 6;
        if (seed % 4 >= 2) options.kills = 2;
        if (seed % 4 == 3) LoseAShard(options);
        return options;
      },
      {"scaled up", "scaled down", "one drained", "sent away"});
}

TEST(ClockedSimulationTest, TheCoordinatorMayDieAndComeBack) {
  const std::string cluster = "workers: 4 shards: 2 min_workers: 1";
  const JobConfig bounded = ClockedJob(kBounded, cluster);
  const JobConfig async = ClockedJob(kAsync, cluster);
  RunSeeds(
      [&](uint64_t seed) {
        JobSimulation::Options options = WithCoordinatorFaults(seed % 2 == 0 ? bounded : async);
        options.kills = 1;
        if (seed % 3 == 0) LoseAShard(options);
        if (seed % 2 == 0) options.scalings = 2;
        return options;
      },
      CoordinatorFaults());
}

}  // namespace
}  // namespace parley
