// Whole jobs under faults, each from a seed. A failing seed is printed; run it alone with
//   simulation_test --seeds=1 --first_seed=N
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/job/job_file.h"
#include "tests/simulation/job_simulation.h"

namespace parley {
namespace {

uint64_t seeds = 500;
uint64_t first_seed = 1;

JobConfig Job(const std::string& how_long, const std::string& cluster = "workers: 3 shards: 2",
              const std::string& sync = "") {
  const std::string path = absl::StrCat(testing::TempDir(), "/simulated.textproto");
  std::ofstream(path) << R"(
      name: "simulated"
      model { own {} }
      data { own {} batch: 2 }
      optimizer { sgd { rate: 1 } }
      checkpoint { at_end: false }
      liveness: "10s"
      stall_timeout: "5m"
      )"
                      << absl::StrCat(how_long, " cluster { ", cluster,
                                      " } consistency { sync { reduction: SUM ", sync, " } }");
  const absl::StatusOr<JobConfig> job = LoadJob(path, {});
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? *job : JobConfig();
}

TEST(SimulationTest, WithoutFaultsAJobRunsToItsEnd) {
  JobSimulation::Options options;
  options.job = Job("steps: 50");
  JobSimulation simulation(options);
  EXPECT_EQ(absl::StrJoin(simulation.Run(), "\n"), "");
  EXPECT_EQ(simulation.steps(), 50u);
}

// Runs the seeds, of which `options` makes the job and the faults, and prints what happened.
void RunSeeds(const std::function<JobSimulation::Options(uint64_t seed)>& options,
              const std::vector<std::string>& expected = {}) {
  NetworkCounts total;
  std::map<std::string, int> happened;
  uint64_t events = 0;
  uint64_t steps = 0;
  uint64_t failed = 0;  // too few workers were left
  for (uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
    JobSimulation::Options of_seed = options(seed);
    of_seed.seed = seed;
    JobSimulation simulation(of_seed);
    const std::vector<std::string> broken = simulation.Run();
    ASSERT_TRUE(broken.empty()) << "seed " << seed << ": " << absl::StrJoin(broken, "\n");
    const NetworkCounts& counts = simulation.network();
    total.calls += counts.calls;
    total.requests_lost += counts.requests_lost;
    total.replies_lost += counts.replies_lost;
    total.duplicated += counts.duplicated;
    total.slowed += counts.slowed;
    failed += simulation.failed();
    events += simulation.events();
    steps += simulation.steps();
    for (const auto& [what, times] : simulation.happened()) happened[what] += times;
  }
  happened["request lost"] = static_cast<int>(total.requests_lost);
  happened["reply lost"] = static_cast<int>(total.replies_lost);
  happened["request duplicated"] = static_cast<int>(total.duplicated);
  happened["message late"] = static_cast<int>(total.slowed);
  std::printf("%d seeds: %d steps, %d events, %d calls, %d jobs had too few workers\n",
              static_cast<int>(seeds), static_cast<int>(steps), static_cast<int>(events),
              static_cast<int>(total.calls), static_cast<int>(failed));
  EXPECT_LE(failed, seeds / 10);
  if (seeds >= 100) {
    for (const std::string& what : expected) happened.try_emplace(what, 0);
  }
  for (const auto& [what, times] : happened) {
    std::printf("  %-24s %d\n", what.c_str(), times);
    EXPECT_GT(times, 0) << what;
  }
}

JobSimulation::Options WithNetworkFaults(const JobConfig& job) {
  JobSimulation::Options options;
  options.job = job;
  options.network.lose_request = 0.02;
  options.network.lose_reply = 0.02;
  options.network.duplicate = 0.02;
  options.network.slow = 0.02;
  options.stops = 3;
  options.cuts = 3;
  options.clock_drift = 0.01;
  return options;
}

TEST(SimulationTest, NoFaultOfTheNetworkChangesASum) {
  const JobConfig job = Job("steps: 50");
  RunSeeds([&](uint64_t) { return WithNetworkFaults(job); });
}

TEST(SimulationTest, WorkersMayDieAndComeBack) {
  const std::string cluster = "workers: 4 shards: 2 min_workers: 1";
  JobConfig go_on = Job("epochs: 3", cluster);
  JobConfig wait = Job("epochs: 3", cluster, "lost_worker: WAIT");
  RunSeeds([&](uint64_t seed) {
    JobSimulation::Options options = WithNetworkFaults(seed % 2 == 0 ? go_on : wait);
    options.kills = 2;
    options.long_stops = 1;
    options.isolations = 1;
    return options;
  });
}

TEST(SimulationTest, TheCoordinatorMayDieAndComeBack) {
  const JobConfig fixed = Job("steps: 60");
  JobConfig checkpointed = fixed;
  checkpointed.mutable_checkpoint()->set_at_end(true);
  const JobConfig elastic = Job("epochs: 3", "workers: 4 shards: 2 min_workers: 1");
  RunSeeds(
      [&](uint64_t seed) {
        JobSimulation::Options options = WithNetworkFaults(seed % 4 == 0   ? fixed
                                                           : seed % 4 == 2 ? checkpointed
                                                                           : elastic);
        if (seed % 2 != 0) options.kills = 1;
        options.coordinator_kills = 2;
        options.coordinator_stops = 1;
        options.coordinator_rivals = 1;
        options.coordinator_cuts = 1;
        // A checkpoint that cannot be written ends the job.
        options.disk_faults = seed % 4 == 2 ? 0 : 2;
        return options;
      },
      {"coordinator killed", "its machine crashed", "coordinator restarted at its address",
       "coordinator restarted elsewhere", "coordinator stopped", "another coordinator started",
       "coordinator cut off", "disk failed", "took over", "lost the rule", "was refused"});
}

}  // namespace
}  // namespace parley

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    absl::string_view flag = argv[i];
    const bool known =
        (absl::ConsumePrefix(&flag, "--seeds=") && absl::SimpleAtoi(flag, &parley::seeds)) ||
        (absl::ConsumePrefix(&flag, "--first_seed=") &&
         absl::SimpleAtoi(flag, &parley::first_seed));
    if (!known) {
      std::fprintf(stderr, "usage: simulation_test [--seeds=N] [--first_seed=N]\n");
      return 2;
    }
  }
  return RUN_ALL_TESTS();
}
