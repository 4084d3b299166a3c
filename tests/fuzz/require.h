#ifndef PARLEY_TESTS_FUZZ_REQUIRE_H_
#define PARLEY_TESTS_FUZZ_REQUIRE_H_

#include <cstdlib>

namespace parley {

// What must hold for every input of a fuzz target: else the process ends, which the fuzzer reports.
inline void Require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace parley

#endif  // PARLEY_TESTS_FUZZ_REQUIRE_H_
