#ifndef PARLEY_TESTS_BENCHMARKS_REQUIRE_H_
#define PARLEY_TESTS_BENCHMARKS_REQUIRE_H_

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace parley {

// Any error ends a benchmark: there is nothing to measure then.
inline void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

template <typename T>
T Require(absl::StatusOr<T> value) {
  Require(value.status());
  return *std::move(value);
}

}  // namespace parley

#endif  // PARLEY_TESTS_BENCHMARKS_REQUIRE_H_
