#ifndef PARLEY_SERVER_PARAMETER_SHARD_PULLED_VERSION_H_
#define PARLEY_SERVER_PARAMETER_SHARD_PULLED_VERSION_H_

#include <cstdint>
#include <vector>

#include "common/tensor_slice.h"
#include "proto/parameter_shard.pb.h"
#include "server/parameter_shard/buffer.h"

namespace parley {

// The answer to a Pull before it is encoded: pins on the slices' values, in the order asked for.
struct PulledVersion {
  struct OneSlice {
    uint32_t slice = 0;
    DataType dtype = DATA_TYPE_UNSPECIFIED;
    PinnedBuffer values;
    uint64_t updates = 0;
  };
  uint64_t version = 0;
  bool has_updates = false;  // the updates of each slice are part of the answer
  std::vector<OneSlice> slices;
};

// The PullReply that it is: all but its slices; and these, which own their pins.
PullReply HeadOf(const PulledVersion& pulled);
std::vector<TensorSlice> SlicesOf(const PulledVersion& pulled);
// Copies the values; not under the shard's lock.
PullReply ToReply(const PulledVersion& pulled);

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_PULLED_VERSION_H_
