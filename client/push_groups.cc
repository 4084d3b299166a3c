#include "client/push_groups.h"

namespace parley {

void PushGroups::Add(uint32_t shard, SliceData slice, std::vector<SliceGroup>& full) {
  if (shard >= open_.size()) open_.resize(shard + 1);
  Open& open = open_[shard];
  open.bytes += slice.data().size();
  open.slices.push_back(std::move(slice));
  if (open.bytes < limit_) return;
  full.push_back({shard, std::move(open.slices)});
  open = Open();
}

std::vector<SliceGroup> PushGroups::TakeAll() {
  std::vector<SliceGroup> groups;
  for (uint32_t shard = 0; shard < open_.size(); ++shard) {
    if (!open_[shard].slices.empty()) groups.push_back({shard, std::move(open_[shard].slices)});
  }
  open_.clear();
  return groups;
}

}  // namespace parley
