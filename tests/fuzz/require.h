#ifndef PARLEY_TESTS_FUZZ_REQUIRE_H_
#define PARLEY_TESTS_FUZZ_REQUIRE_H_

#include <cstdio>
#include <cstdlib>

namespace parley {

// What must hold for every input of a fuzz target: else the process ends and says which line
// required it, which the fuzzer reports.
inline void Require(bool holds, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (holds) return;
  std::fprintf(stderr, "%s:%d does not hold\n", file, line);
  std::abort();
}

}  // namespace parley

#endif  // PARLEY_TESTS_FUZZ_REQUIRE_H_
