#ifndef PARLEY_CLIENT_SLICE_LAYOUT_H_
#define PARLEY_CLIENT_SLICE_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/types.pb.h"

namespace parley {

// A range of a tensor's bytes that goes to or comes from a shard.
struct PlacedSlice {
  uint32_t slice = 0;  // id in the view
  size_t tensor = 0;   // index among the registered tensors
  uint32_t shard = 0;  // ordinal
  size_t begin = 0;    // in bytes of the tensor
  size_t bytes = 0;
};

// Where the registered tensors lie, as the view says, and what one contributor sends of them.
class SliceLayout {
 public:
  // Checks the view against the tensors: each has its slices, which cover it once, on shards that
  // are members; ids of slices and ordinals of shards count up from 0. Internal where they do not
  // fit: the coordinator made a view of another model. In a job with pipelines the view may have
  // more of them.
  static absl::StatusOr<SliceLayout> Make(const ClusterView& view,
                                          const std::vector<TensorSpec>& tensors,
                                          uint32_t contributor, uint64_t member);

  // All slices, by shard and then as in the view.
  const std::vector<std::vector<PlacedSlice>>& by_shard() const { return by_shard_; }
  // What this member pushes of a tensor.
  const std::vector<PlacedSlice>& pushes(size_t tensor) const { return pushes_[tensor]; }
  // What each part of the contributor pushes of a tensor, where the view names parts.
  struct PartSlice {
    uint32_t part = 0;
    PlacedSlice slice;
  };
  const std::vector<PartSlice>& parts(size_t tensor) const { return parts_[tensor]; }
  // The one part that pushes the whole slice, by its id; nullopt where there are none or several.
  std::optional<uint32_t> OwnerOf(uint32_t slice) const {
    return slice < owners_.size() ? owners_[slice] : std::nullopt;
  }
  size_t tensors() const { return pushes_.size(); }
  // The part of the contributor that this member sends.
  uint32_t part() const { return part_; }
  // host:port by ordinal.
  const std::vector<std::string>& shard_addresses() const { return shard_addresses_; }

 private:
  std::vector<std::vector<PlacedSlice>> by_shard_;
  std::vector<std::vector<PlacedSlice>> pushes_;
  std::vector<std::vector<PartSlice>> parts_;
  std::vector<std::optional<uint32_t>> owners_;  // by slice
  std::vector<std::string> shard_addresses_;
  uint32_t part_ = 0;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_SLICE_LAYOUT_H_
