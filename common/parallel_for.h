#ifndef PARLEY_COMMON_PARALLEL_FOR_H_
#define PARLEY_COMMON_PARALLEL_FOR_H_

#include <cstddef>
#include <functional>

namespace parley {

// Runs body(0) to body(count - 1), each once, in any order and perhaps at the same time, and
// returns when all have ended. What a core gets where it may use threads that are not its own;
// empty: one after the other.
using ParallelFor = std::function<void(size_t count, const std::function<void(size_t)>& body)>;

inline void RunInParallel(const ParallelFor& parallel, size_t count,
                          const std::function<void(size_t)>& body) {
  if (parallel) return parallel(count, body);
  for (size_t i = 0; i < count; ++i) body(i);
}

}  // namespace parley

#endif  // PARLEY_COMMON_PARALLEL_FOR_H_
