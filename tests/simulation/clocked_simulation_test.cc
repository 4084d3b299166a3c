// Whole jobs in bounded and async under the same faults as those in sync.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/job_file.h"
#include "tests/simulation/simulation_seeds.h"

namespace parley {
namespace {

JobConfig ClockedJob(const std::string& mode, const std::string& cluster) {
  const std::string path = absl::StrCat(testing::TempDir(), "/clocked.textproto");
  std::ofstream(path) << R"(
      name: "clocked"
      model { own {} }
      data { own {} batch: 2 }
      optimizer { sgd { rate: 1 } }
      checkpoint { at_end: false }
      liveness: "10s"
      stall_timeout: "5m"
      epochs: 3
      )" << absl::StrCat("cluster { ", cluster, " } consistency { ", mode, " }");
  const absl::StatusOr<JobConfig> job = LoadJob(path, {});
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? *job : JobConfig();
}

constexpr char kBounded[] = "bounded { bound: 1 reduction: SUM }";
constexpr char kAsync[] = "async { reduction: SUM }";

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
    return options;
  });
}

TEST(ClockedSimulationTest, TheCoordinatorMayDieAndComeBack) {
  const std::string cluster = "workers: 4 shards: 2 min_workers: 1";
  const JobConfig bounded = ClockedJob(kBounded, cluster);
  const JobConfig async = ClockedJob(kAsync, cluster);
  RunSeeds(
      [&](uint64_t seed) {
        JobSimulation::Options options = WithCoordinatorFaults(seed % 2 == 0 ? bounded : async);
        options.kills = 1;
        return options;
      },
      CoordinatorFaults());
}

}  // namespace
}  // namespace parley
