// The protocol of remote references under faults, each course of events from a seed. A failing seed
// is printed; run it alone with
//   reference_simulation_test --gtest_filter=KIND --seeds=1 --first_seed=N
#include "tests/simulation/references/reference_simulation.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace parley {
namespace {

struct SeedRange {
  uint64_t first = 1;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  uint64_t count = 400;  // they take many times as long
#else
  uint64_t count = 2000;
#endif
};
SeedRange& Seeds() {
  static SeedRange seeds;
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

void RunSeeds(const std::function<Options(uint64_t)>& options, bool process_faults) {
  ReferenceCoverage coverage;
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
  if (process_faults && Seeds().count >= 300) {
    EXPECT_EQ(absl::StrJoin(coverage.Missing(), ", "), "") << "never met";
  }
}

TEST(ReferenceSimulationTest, WhereOnlyMessagesGoWrongNoReferenceFails) {
  RunSeeds(
      [](uint64_t seed) {
        Options options = Base(seed);
        options.calm = true;
        options.lease = options.patience = absl::Seconds(60);
        return options;
      },
      /*process_faults=*/false);
}

TEST(ReferenceSimulationTest, ProcessesMayDieAtAnyMessage) {
  RunSeeds(
      [](uint64_t seed) {
        Options options = Base(seed);
        options.kills = 2;
        options.aimed = 3;
        return options;
      },
      /*process_faults=*/false);
}

TEST(ReferenceSimulationTest, ProcessesMayPausePastTheirLeases) {
  RunSeeds(
      [](uint64_t seed) {
        Options options = Base(seed);
        options.short_pauses = 3;
        options.long_pauses = 3;
        return options;
      },
      /*process_faults=*/false);
}

TEST(ReferenceSimulationTest, TheNetworkMayFallApart) {
  RunSeeds(
      [](uint64_t seed) {
        Options options = Base(seed);
        options.cuts = 6;
        options.isolations = 2;
        return options;
      },
      /*process_faults=*/false);
}

TEST(ReferenceSimulationTest, AllOfItAtOnce) {
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
      /*process_faults=*/true);
}

}  // namespace
}  // namespace parley

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    absl::string_view flag = argv[i];
    const bool known = (absl::ConsumePrefix(&flag, "--seeds=") &&
                        absl::SimpleAtoi(flag, &parley::Seeds().count)) ||
                       (absl::ConsumePrefix(&flag, "--first_seed=") &&
                        absl::SimpleAtoi(flag, &parley::Seeds().first));
    if (!known) {
      std::fprintf(stderr, "usage: reference_simulation_test [--seeds=N] [--first_seed=N]\n");
      return 2;
    }
  }
  return RUN_ALL_TESTS();
}
