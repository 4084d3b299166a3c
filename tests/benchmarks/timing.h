#ifndef PARLEY_TESTS_BENCHMARKS_TIMING_H_
#define PARLEY_TESTS_BENCHMARKS_TIMING_H_

#include <algorithm>
#include <functional>
#include <vector>

#include "absl/time/time.h"
#include "common/clock/steady_now.h"

namespace parley {

inline double SecondsSince(absl::Time begin) { return absl::ToDoubleSeconds(SteadyNow() - begin); }

inline double SecondsOf(const std::function<void()>& work) {
  const absl::Time begin = SteadyNow();
  work();
  return SecondsSince(begin);
}

// `values` must not be empty.
inline double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// What a machine that is shared can do.
inline double Best(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

}  // namespace parley

#endif  // PARLEY_TESTS_BENCHMARKS_TIMING_H_
