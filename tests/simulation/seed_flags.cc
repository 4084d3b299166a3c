#include "tests/simulation/seed_flags.h"

#include <cstdio>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace parley {

bool ReadSeedFlags(int argc, char** argv, SeedRange& seeds) {
  for (int i = 1; i < argc; ++i) {
    absl::string_view flag = argv[i];
    const bool known =
        (absl::ConsumePrefix(&flag, "--seeds=") && absl::SimpleAtoi(flag, &seeds.count)) ||
        (absl::ConsumePrefix(&flag, "--first_seed=") && absl::SimpleAtoi(flag, &seeds.first));
    if (known) continue;
    std::fprintf(stderr, "usage: %s [--seeds=N] [--first_seed=N]\n", argv[0]);
    return false;
  }
  return true;
}

}  // namespace parley
