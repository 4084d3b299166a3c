#ifndef PARLEY_TESTS_SIMULATION_PUSHED_BYTES_H_
#define PARLEY_TESTS_SIMULATION_PUSHED_BYTES_H_

#include <cstdint>
#include <cstring>
#include <string>

#include "common/nonzero_blocks.h"
#include "proto/types.pb.h"
#include "tests/simulation/simulated_model.h"

namespace parley {

// What was pushed of a slice (of a tensor with the same number, as they are small), with the zeros
// that are left out of it.
inline std::string BytesOf(const SliceData& slice, const SimulatedModel& model) {
  if (slice.nonzero().empty()) return slice.data();
  const uint64_t elements = model.size(slice.slice());
  std::string bytes(elements * sizeof(float), '\0');
  size_t taken = 0;
  ForRuns(slice.nonzero(), 0, elements, [&](uint64_t begin, uint64_t end, bool holds) {
    if (!holds) return;
    const size_t size = (end - begin) * sizeof(float);
    std::memcpy(bytes.data() + begin * sizeof(float), slice.data().data() + taken, size);
    taken += size;
  });
  return bytes;
}

}  // namespace parley

#endif  // PARLEY_TESTS_SIMULATION_PUSHED_BYTES_H_
