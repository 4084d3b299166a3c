#ifndef PARLEY_TESTS_SIMULATION_SEED_FLAGS_H_
#define PARLEY_TESTS_SIMULATION_SEED_FLAGS_H_

#include <cstdint>

namespace parley {

struct SeedRange {
  uint64_t first = 1;
  uint64_t count = 0;
};

// Which seeds each kind of simulation runs: from the flags that GoogleTest has left, --seeds=N and
// --first_seed=N. False where there is another one, when the usage has been printed.
bool ReadSeedFlags(int argc, char** argv, SeedRange& seeds);

}  // namespace parley

#endif  // PARLEY_TESTS_SIMULATION_SEED_FLAGS_H_
