// Whole jobs under faults, each from a seed. A failing seed is printed; run it alone with
//   simulation_test --seeds=1 --first_seed=N
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "tests/simulation/job_simulation.h"
#include "tests/simulation/seed_flags.h"
#include "tests/simulation/simulated_job.h"
#include "tests/simulation/simulation_seeds.h"

namespace parley {
namespace {

JobConfig Job(const std::string& how_long, const std::string& cluster = "workers: 3 shards: 2",
              const std::string& sync = "reduction: SUM", const std::string& optimizer = "") {
  return SimulatedJob(absl::StrCat(how_long, " cluster { ", cluster, " } consistency { sync { ",
                                   sync, " } } optimizer { sgd { rate: 1 } ", optimizer, " }"));
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

TEST(SimulationTest, NoFaultOfTheNetworkChangesASum) {
  const JobConfig job = Job("steps: 50");
  RunSeeds(
      [&](uint64_t) {
        JobSimulation::Options options = WithNetworkFaults(job);
        options.all_evaluations_whole = true;
        return options;
      },
      {"update ahead taken", "update ahead dropped"});
}

void LoseWorkers(JobSimulation::Options& options) {
  options.kills = 2;
  options.long_stops = 1;
  options.isolations = 1;
}

void LoseShards(JobSimulation::Options& options, int how_many) {
  options.job.set_max_restarts(100);
  options.shard_kills = how_many;
}

TEST(SimulationTest, MeansAndClippedMeansAreThoseOfTheVerdicts) {
  const std::string cluster = "workers: 4 shards: 3 min_workers: 1";
  const std::vector<JobConfig> jobs = {
      Job("epochs: 4", cluster, "reduction: MEAN"),
      Job("epochs: 4", cluster, "reduction: MEAN", "clip_norm: 4"),
      Job("epochs: 4", cluster, "reduction: MEAN lost_worker: WAIT", "clip_norm: 4"),
      Job("epochs: 4", cluster, "reduction: MEAN backup: 1", "clip_norm: 4")};
  RunSeeds([&](uint64_t seed) {
    JobSimulation::Options options = WithNetworkFaults(jobs[seed % jobs.size()]);
    options.samples = 121;  // the last one of a data epoch weighs half
    LoseWorkers(options);
    if (seed % 5 < 2) LoseShards(options, 1);
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
  const JobConfig one = Job("epochs: 3", "workers: 4 shards: 2", "reduction: SUM backup: 1");
  const JobConfig two = Job("steps: 60", "workers: 4 shards: 2", "reduction: SUM backup: 2");
  RunSeeds([&](uint64_t seed) { return WithASlowWorker(seed % 2 == 0 ? one : two); });
}

TEST(SimulationTest, BackupWorkersMayDieAndComeBack) {
  const JobConfig job =
      Job("epochs: 3", "workers: 4 shards: 2 min_workers: 1", "reduction: SUM backup: 1");
  RunSeeds([&](uint64_t) {
    JobSimulation::Options options = WithASlowWorker(job);
    LoseWorkers(options);
    return options;
  });
}

TEST(SimulationTest, WorkersMayDieAndComeBack) {
  const std::string cluster = "workers: 4 shards: 2 min_workers: 1";
  const JobConfig go_on = Job("epochs: 4", cluster);
  const JobConfig wait = Job("epochs: 4", cluster, "reduction: SUM lost_worker: WAIT");
  RunSeeds([&](uint64_t seed) {
    JobSimulation::Options options = WithNetworkFaults(seed % 2 == 0 ? go_on : wait);
    LoseWorkers(options);
    if (seed % 5 < 2) LoseShards(options, 1);
    return options;
  });
}

TEST(SimulationTest, WorkersAreAddedAndSentAway) {
  const std::string cluster = "workers: 4 shards: 3 min_workers: 1";
  const std::vector<JobConfig> jobs = {Job("epochs: 6", cluster),
                                       Job("epochs: 6", cluster, "reduction: MEAN", "clip_norm: 4"),
                                       Job("epochs: 6", cluster, "reduction: SUM backup: 1")};
  RunSeeds(
      [&](uint64_t seed) {
        JobSimulation::Options options = WithNetworkFaults(jobs[seed % jobs.size()]);
        options.scalings = 6;
        // Half of them only with this: then nobody counts as lost, and nothing is done again.
        if (seed % 4 >= 2) LoseWorkers(options);
        if (seed % 4 == 3) LoseShards(options, 1);
        options.all_evaluations_whole = seed % 4 < 2 && seed % jobs.size() != 2;
        return options;
      },
      {"scaled up", "scaled down", "one drained", "sent away"});
}

TEST(SimulationTest, ShardsMayDieAndAllGoBack) {
  const std::string elastic = "workers: 4 shards: 3 min_workers: 1";
  const std::vector<JobConfig> jobs = {
      Job("steps: 60"), Job("epochs: 4", elastic),
      Job("epochs: 3", elastic, "reduction: MEAN backup: 1", "clip_norm: 4"),
      Job("epochs: 4", elastic, "reduction: SUM lost_worker: WAIT")};
  RunSeeds([&](uint64_t seed) {
    JobSimulation::Options options = WithNetworkFaults(jobs[seed % jobs.size()]);
    options.job.mutable_checkpoint()->set_at_end(seed % 3 == 0);
    LoseShards(options, 3);
    if (options.job.cluster().min_workers() == 1) options.kills = 1;
    return options;
  });
}

TEST(SimulationTest, TheCoordinatorMayDieAndComeBack) {
  const std::string elastic = "workers: 4 shards: 2 min_workers: 1";
  const JobConfig fixed = Job("steps: 60");
  JobConfig checkpointed = fixed;
  checkpointed.mutable_checkpoint()->set_at_end(true);
  const JobConfig go_on = Job("epochs: 4", elastic);
  const JobConfig wait = Job("epochs: 4", elastic, "reduction: SUM lost_worker: WAIT");
  const JobConfig backup = Job("epochs: 4", elastic, "reduction: SUM backup: 1");
  const std::vector<const JobConfig*> jobs = {&fixed, &go_on, &checkpointed, &wait, &backup};
  RunSeeds(
      [&](uint64_t seed) {
        const JobConfig& job = *jobs[seed % jobs.size()];
        JobSimulation::Options options = WithCoordinatorFaults(job);
        if (job.cluster().min_workers() == 1) options.kills = 1;
        if (seed % 3 == 0) LoseShards(options, 1);
        if (seed % 2 == 0) {
          options.scalings = 2;
          // Of more workers' samples there are fewer steps.
          if (options.job.has_epochs()) options.job.set_epochs(6);
        }
        // A checkpoint that cannot be written ends the job.
        if (job.checkpoint().at_end()) options.disk_faults = 0;
        return options;
      },
      CoordinatorFaults());
}

}  // namespace
}  // namespace parley

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (!parley::ReadSeedFlags(argc, argv, parley::Seeds())) return 2;
  // Of a tenth of all time; the tests with real threads have it.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  // Stacks of fibers come and go; each time one is given back whole would tidy up the heap.
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 512 << 20);
  return RUN_ALL_TESTS();
}
