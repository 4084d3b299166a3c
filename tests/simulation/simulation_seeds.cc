#include "tests/simulation/simulation_seeds.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"

namespace parley {

SeedRange& Seeds() {
  static SeedRange range;
  return range;
}

void RunSeeds(const std::function<JobSimulation::Options(uint64_t seed)>& options,
              const std::vector<std::string>& expected) {
  NetworkCounts total;
  std::map<std::string, int> happened;
  uint64_t events = 0;
  uint64_t steps = 0;
  uint64_t failed = 0;  // too few workers were left
  int ordered = 0;
  int left_out = 0;
  const uint64_t end = Seeds().first + Seeds().count;
  for (uint64_t seed = Seeds().first; seed < end; ++seed) {
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
              static_cast<int>(Seeds().count), static_cast<int>(steps), static_cast<int>(events),
              static_cast<int>(total.calls), static_cast<int>(failed));
  std::printf("  %-24s %d, left out %d\n", "evaluation", ordered, left_out);
  EXPECT_LE(failed, Seeds().count / 10);
  EXPECT_LE(left_out * 10, ordered);
  if (Seeds().count >= 100) {
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

JobSimulation::Options WithCoordinatorFaults(const JobConfig& job) {
  JobSimulation::Options options = WithNetworkFaults(job);
  // A job takes about so long: its evaluations and its end are among what may be disturbed.
  options.faults_within = absl::Minutes(3);
  options.coordinator_kills = 2;
  options.coordinator_stops = 1;
  options.coordinator_rivals = 1;
  options.coordinator_cuts = 1;
  options.disk_faults = 2;
  return options;
}

std::vector<std::string> CoordinatorFaults() {
  return {"coordinator killed",
          "its machine crashed",
          "coordinator restarted at its address",
          "coordinator restarted elsewhere",
          "coordinator stopped",
          "another coordinator started",
          "coordinator cut off",
          "disk failed",
          "evaluated without a coordinator",
          "took over",
          "lost the rule",
          "was refused"};
}

}  // namespace parley
