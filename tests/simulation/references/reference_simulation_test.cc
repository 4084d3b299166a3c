// The protocol of remote references under faults, each course of events from a seed. A failing seed
// is printed; run it alone with
//   reference_simulation_test --gtest_filter=KIND --seeds=1 --first_seed=N
#include "tests/simulation/references/reference_simulation.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>

#include "absl/strings/str_join.h"
#include "tests/simulation/seed_flags.h"

namespace parley {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kSeeds = 400;  // they take many times as long
#else
constexpr uint64_t kSeeds = 2000;
#endif

SeedRange& Seeds() {
  static SeedRange seeds = {1, kSeeds};
  return seeds;
}

using Options = ReferenceSimulation::Options;

Options Base(uint64_t seed) {
  Options options;
  options.seed = seed;
  options.processes = 3 + seed % 3;
  options.scopes = seed % 2 == 0;
  options.faults.worst = static_cast<MessageType>(seed / 2 % (kMessageTypes + 1));
  return options;
}

// `coverage` gets what was met.
void RunSeeds(const std::function<Options(uint64_t)>& options, ReferenceCoverage& coverage) {
  ReferenceSimulation::Counts sums;
  for (uint64_t seed = Seeds().first; seed < Seeds().first + Seeds().count; ++seed) {
    ReferenceSimulation simulation(options(seed));
    const std::string broken = absl::StrJoin(simulation.Run(), "\n");
    if (!broken.empty()) FAIL() << "\nseed " << seed << ": " << broken;
    const auto& counts = simulation.counts();
    ASSERT_GE(counts.references, 50u) << "seed " << seed;
    ASSERT_GE(simulation.coverage().faults(), 10u) << "seed " << seed;
    ASSERT_LE(counts.most_operations, 500u) << "seed " << seed;
    coverage.Add(simulation.coverage());
    sums.events += counts.events;
    sums.references += counts.references;
    sums.fetched += counts.fetched;
    sums.failed += counts.failed;
    sums.runs += counts.runs;
    sums.ahead += counts.ahead;
  }
  std::printf(
      "%lu seeds: %lu references, %lu values fetched, %lu not, %lu functions run, %lu values sent "
      "ahead, %lu faults, %lu events\n%s\n",
      static_cast<unsigned long>(Seeds().count), static_cast<unsigned long>(sums.references),
      static_cast<unsigned long>(sums.fetched), static_cast<unsigned long>(sums.failed),
      static_cast<unsigned long>(sums.runs), static_cast<unsigned long>(sums.ahead),
      static_cast<unsigned long>(coverage.faults()), static_cast<unsigned long>(sums.events),
      coverage.Table().c_str());
}

void RunSeeds(const std::function<Options(uint64_t)>& options) {
  ReferenceCoverage coverage;
  RunSeeds(options, coverage);
}

TEST(ReferenceSimulationTest, WhereOnlyMessagesGoWrongNoReferenceFails) {
  RunSeeds([](uint64_t seed) {
    Options options = Base(seed);
    options.calm = true;
    options.lease = options.patience = absl::Seconds(60);
    return options;
  });
}

TEST(ReferenceSimulationTest, ProcessesMayDieAtAnyMessage) {
  RunSeeds([](uint64_t seed) {
    Options options = Base(seed);
    options.kills = 2;
    options.aimed = 3;
    return options;
  });
}

TEST(ReferenceSimulationTest, ProcessesMayPausePastTheirLeases) {
  RunSeeds([](uint64_t seed) {
    Options options = Base(seed);
    options.short_pauses = 3;
    options.long_pauses = 3;
    return options;
  });
}

TEST(ReferenceSimulationTest, TheNetworkMayFallApart) {
  RunSeeds([](uint64_t seed) {
    Options options = Base(seed);
    options.cuts = 6;
    options.isolations = 2;
    return options;
  });
}

TEST(ReferenceSimulationTest, AllOfItAtOnce) {
  ReferenceCoverage coverage;
  RunSeeds(
      [](uint64_t seed) {
        Options options = Base(seed);
        options.kills = 1;
        options.aimed = 2;
        options.short_pauses = 2;
        options.long_pauses = 1;
        options.cuts = 3;
        options.isolations = 1;
        return options;
      },
      coverage);
  if (HasFailure() || Seeds().count < 300) return;  // of a few seeds nothing follows
  EXPECT_EQ(absl::StrJoin(coverage.Missing(), ", "), "") << "never met";
}

}  // namespace
}  // namespace parley

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (!parley::ReadSeedFlags(argc, argv, parley::Seeds())) return 2;
  return RUN_ALL_TESTS();
}
