// Whole jobs under faults, each from a seed. A failing seed is printed; run it alone with
//   simulation_test --seeds=1 --first_seed=N
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <string>

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
  options.all_evaluations_whole = true;
  JobSimulation simulation(options);
  EXPECT_EQ(absl::StrJoin(simulation.Run(), "\n"), "");
  EXPECT_EQ(simulation.steps(), 50u);
  EXPECT_EQ(simulation.evaluations_ordered(), 3);  // 20 steps an epoch
}

// Runs the seeds, of which `options` makes the job and the faults, and prints what happened.
void RunSeeds(const std::function<JobSimulation::Options(uint64_t seed)>& options) {
  NetworkCounts total;
  std::map<std::string, int> happened;
  uint64_t events = 0;
  uint64_t steps = 0;
  uint64_t failed = 0;  // too few workers were left
  int ordered = 0;
  int left_out = 0;
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
    ordered += simulation.evaluations_ordered();
    left_out += simulation.evaluations_left_out();
    for (const auto& [what, times] : simulation.happened()) happened[what] += times;
  }
  happened["request lost"] = static_cast<int>(total.requests_lost);
  happened["reply lost"] = static_cast<int>(total.replies_lost);
  happened["request duplicated"] = static_cast<int>(total.duplicated);
  happened["message late"] = static_cast<int>(total.slowed);
  std::printf("%d seeds: %d steps, %d events, %d calls, %d jobs had too few workers\n",
              static_cast<int>(seeds), static_cast<int>(steps), static_cast<int>(events),
              static_cast<int>(total.calls), static_cast<int>(failed));
  std::printf("  %-24s %d, left out %d\n", "evaluation", ordered, left_out);
  EXPECT_LE(failed, seeds / 10);
  EXPECT_LE(left_out * 10, ordered);
  for (const auto& [what, times] : happened) {
    std::printf("  %-24s %d\n", what.c_str(), times);
    EXPECT_GT(times, 0) << what;
  }
}

JobSimulation::Options WithNetworkFaults(const JobConfig& job) {
  JobSimulation::Options options;
  options.job = job;
  // In some thousand long jobs four heartbeats of a member are lost one after the other. Whether it
  // is lost then is the coordinator's word, so that all tell the same;
  // and a worker that is cut off from all comes back.
  options.job.set_autonomy("60s");
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
  RunSeeds([&](uint64_t) {
    JobSimulation::Options options = WithNetworkFaults(job);
    options.all_evaluations_whole = true;
    return options;
  });
}

// One worker takes about five times as long as the others.
JobSimulation::Options WithASlowWorker(const JobConfig& job) {
  JobSimulation::Options options = WithNetworkFaults(job);
  options.slow_compute = absl::Seconds(1.5);
  return options;
}

TEST(SimulationTest, BackupWorkersDoNotWaitForASlowOne) {
  const JobConfig one = Job("epochs: 3", "workers: 4 shards: 2", "backup: 1");
  const JobConfig two = Job("steps: 60", "workers: 4 shards: 2", "backup: 2");
  RunSeeds([&](uint64_t seed) { return WithASlowWorker(seed % 2 == 0 ? one : two); });
}

TEST(SimulationTest, BackupWorkersMayDieAndComeBack) {
  const JobConfig job = Job("epochs: 3", "workers: 4 shards: 2 min_workers: 1", "backup: 1");
  RunSeeds([&](uint64_t) {
    JobSimulation::Options options = WithASlowWorker(job);
    options.kills = 2;
    options.long_stops = 1;
    options.isolations = 1;
    return options;
  });
}

TEST(SimulationTest, WorkersMayDieAndComeBack) {
  const std::string cluster = "workers: 4 shards: 2 min_workers: 1";
  const JobConfig go_on = Job("epochs: 3", cluster);
  const JobConfig wait = Job("epochs: 3", cluster, "lost_worker: WAIT");
  RunSeeds([&](uint64_t seed) {
    JobSimulation::Options options = WithNetworkFaults(seed % 2 == 0 ? go_on : wait);
    options.kills = 2;
    options.long_stops = 1;
    options.isolations = 1;
    return options;
  });
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
