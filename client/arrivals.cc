#include "client/arrivals.h"

#include <algorithm>

namespace parley {

Arrivals::Arrivals(const SliceLayout& layout) : tensors_(layout.tensors()) {
  for (const std::vector<PlacedSlice>& slices : layout.by_shard()) {
    for (const PlacedSlice& slice : slices) {
      tensors_[slice.tensor].ends.push_back(slice.begin + slice.bytes);
    }
  }
  for (Tensor& tensor : tensors_) std::sort(tensor.ends.begin(), tensor.ends.end());
  Begin();
}

void Arrivals::Begin() {
  for (Tensor& tensor : tensors_) {
    tensor.is_here.assign(tensor.ends.size(), false);
    tensor.first = 0;
  }
}

void Arrivals::Add(const PlacedSlice& slice) {
  Tensor& tensor = tensors_[slice.tensor];
  const auto end =
      std::lower_bound(tensor.ends.begin(), tensor.ends.end(), slice.begin + slice.bytes);
  tensor.is_here[static_cast<size_t>(end - tensor.ends.begin())] = true;
  while (tensor.first < tensor.ends.size() && tensor.is_here[tensor.first]) ++tensor.first;
}

bool Arrivals::HasUntil(size_t tensor, size_t bytes) const {
  const Tensor& of = tensors_[tensor];
  if (of.first == of.ends.size()) return true;
  return (of.first == 0 ? 0 : of.ends[of.first - 1]) >= bytes;
}

}  // namespace parley
