#include "client/slice_layout.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/tensor.h"

namespace parley {
namespace {

absl::Status Misfit(const std::string& what) {
  return absl::InternalError(absl::StrCat("the view does not fit the registered model: ", what));
}

bool SameTensor(const TensorSpec& a, const TensorSpec& b) {
  return a.name() == b.name() && a.dtype() == b.dtype() && a.buffer() == b.buffer() &&
         std::equal(a.shape().begin(), a.shape().end(), b.shape().begin(), b.shape().end());
}

// A tensor that this process has no part of.
constexpr size_t kOfOthers = SIZE_MAX;

// View's index of a tensor -> index among those of this process, or kOfOthers.
absl::StatusOr<std::vector<size_t>> MatchTensors(const ClusterView& view,
                                                 const std::vector<TensorSpec>& tensors) {
  std::map<std::string, size_t> by_name;
  for (size_t i = 0; i < tensors.size(); ++i) by_name[tensors[i].name()] = i;
  std::vector<size_t> match;
  size_t own = 0;
  for (const TensorSpec& tensor : view.tensors()) {
    const auto found = by_name.find(tensor.name());
    if (found == by_name.end() && !tensor.stages().empty()) {
      match.push_back(kOfOthers);
      continue;
    }
    if (found == by_name.end() || !SameTensor(tensor, tensors[found->second])) {
      return Misfit(absl::StrCat("tensor '", tensor.name(), "' is another or none of ours"));
    }
    match.push_back(found->second);
    ++own;
  }
  if (own != tensors.size() || by_name.size() != tensors.size()) {
    return Misfit(absl::StrCat(own, " tensors instead of ", tensors.size()));
  }
  return match;
}

uint32_t PartOf(const ClusterView& view, uint32_t contributor, uint64_t member) {
  for (const Contributor& each : view.contributors()) {
    if (each.ordinal() != contributor) continue;
    for (int part = 0; part < each.part_members_size(); ++part) {
      if (each.part_members(part) == member) return part;
    }
  }
  return 0;
}

absl::Status CheckCover(std::vector<std::pair<uint64_t, uint64_t>> ranges,
                        const TensorSpec& tensor) {
  std::sort(ranges.begin(), ranges.end());
  uint64_t at = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin != at || end <= begin) return Misfit(absl::StrCat("slices of '", tensor.name(), "'"));
    at = end;
  }
  if (at != ElementCount(tensor)) return Misfit(absl::StrCat("slices of '", tensor.name(), "'"));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SliceLayout> SliceLayout::Make(const ClusterView& view,
                                              const std::vector<TensorSpec>& tensors,
                                              uint32_t contributor, uint64_t member) {
  absl::StatusOr<std::vector<size_t>> match = MatchTensors(view, tensors);
  if (!match.ok()) return match.status();
  SliceLayout layout;
  layout.part_ = PartOf(view, contributor, member);
  layout.pushes_.resize(tensors.size());
  layout.parts_.resize(tensors.size());
  for (const Member& each : view.members()) {
    if (each.role() != SHARD) continue;
    if (each.ordinal() > 100'000) return Misfit("a shard's ordinal");
    if (each.ordinal() >= layout.shard_addresses_.size()) {
      layout.shard_addresses_.resize(each.ordinal() + 1);
    }
    layout.shard_addresses_[each.ordinal()] = each.address();
  }
  // Who asks all shards asks each ordinal below the highest one.
  for (size_t shard = 0; shard < layout.shard_addresses_.size(); ++shard) {
    if (layout.shard_addresses_[shard].empty()) return Misfit(absl::StrCat("no shard ", shard));
  }
  layout.by_shard_.resize(layout.shard_addresses_.size());

  std::vector<std::vector<std::pair<uint64_t, uint64_t>>> ranges(tensors.size());
  layout.owners_.resize(view.slices_size());
  for (int i = 0; i < view.slices_size(); ++i) {
    const Slice& slice = view.slices(i);
    // What is kept by id lies in arrays of as many.
    if (slice.id() != static_cast<uint32_t>(i)) {
      return Misfit(absl::StrCat("slice ", i, " has id ", slice.id()));
    }
    if (slice.tensor() >= match->size() || slice.shard() >= layout.by_shard_.size()) {
      return Misfit(absl::StrCat("slice ", slice.id()));
    }
    const size_t tensor = (*match)[slice.tensor()];
    if (tensor == kOfOthers) continue;
    const size_t element = ElementBytes(tensors[tensor].dtype());
    ranges[tensor].emplace_back(slice.begin(), slice.end());
    const auto place = [&](uint64_t begin, uint64_t end) {
      return PlacedSlice{slice.id(), tensor, slice.shard(), begin * element,
                         (end - begin) * element};
    };
    layout.by_shard_[slice.shard()].push_back(place(slice.begin(), slice.end()));
    if (slice.parts().empty()) {
      if (layout.part_ == 0) {
        layout.pushes_[tensor].push_back(place(slice.begin(), slice.end()));
      }
      continue;
    }
    int own_parts = 0;
    for (const SlicePart& part : slice.parts()) {
      if (part.contributor() != contributor) continue;
      const bool whole = part.begin() == slice.begin() && part.end() == slice.end();
      layout.owners_[slice.id()] =
          whole && own_parts == 0 ? std::optional(part.part()) : std::nullopt;
      ++own_parts;
      if (part.begin() < slice.begin() || part.end() > slice.end() || part.begin() >= part.end()) {
        return Misfit(absl::StrCat("a part of slice ", slice.id()));
      }
      layout.parts_[tensor].push_back({part.part(), place(part.begin(), part.end())});
      if (part.part() == layout.part_) {
        layout.pushes_[tensor].push_back(place(part.begin(), part.end()));
      }
    }
  }
  // What is pulled: buffers first (they are small, and copied whole), then in the order in which
  // forward is likely to need it, that of registration.
  for (std::vector<PlacedSlice>& slices : layout.by_shard_) {
    std::stable_sort(slices.begin(), slices.end(), [&](const PlacedSlice& a, const PlacedSlice& b) {
      const bool later_a = !tensors[a.tensor].buffer();
      const bool later_b = !tensors[b.tensor].buffer();
      return std::tie(later_a, a.tensor, a.begin) < std::tie(later_b, b.tensor, b.begin);
    });
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    absl::Status covered = CheckCover(std::move(ranges[i]), tensors[i]);
    if (!covered.ok()) return covered;
  }
  return layout;
}

}  // namespace parley
