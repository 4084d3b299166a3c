#ifndef PARLEY_CLIENT_PUSH_GROUPS_H_
#define PARLEY_CLIENT_PUSH_GROUPS_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "proto/types.pb.h"

namespace parley {

// Slices of one shard, to go in one message.
struct SliceGroup {
  uint32_t shard = 0;
  std::vector<SliceData> slices;
};

// Collects the slices that tensors give one after the other into messages, so that many small
// tensors do not cost a call each (gradient bucketing; Li et al., PyTorch Distributed, 2020). Not
// thread-safe.
class PushGroups {
 public:
  explicit PushGroups(size_t limit_bytes) : limit_(limit_bytes) {}

  // Adds a slice; a group that has reached the limit with it is put into `full`.
  void Add(uint32_t shard, SliceData slice, std::vector<SliceGroup>& full);

  // Takes what is left.
  std::vector<SliceGroup> TakeAll();

 private:
  struct Open {
    std::vector<SliceData> slices;
    size_t bytes = 0;
  };

  const size_t limit_;
  std::vector<Open> open_;  // by shard
};

}  // namespace parley

#endif  // PARLEY_CLIENT_PUSH_GROUPS_H_
