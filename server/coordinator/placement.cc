#include "server/coordinator/placement.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/tensor.h"

namespace parley {

absl::Status CheckTensors(const std::vector<TensorSpec>& tensors) {
  if (tensors.empty()) return absl::InvalidArgumentError("the model has no tensors");
  std::set<std::string> names;
  uint64_t total = 0;
  for (const TensorSpec& tensor : tensors) {
    if (tensor.name().empty()) return absl::InvalidArgumentError("a tensor has no name");
    const std::string who = absl::StrCat("tensor '", tensor.name(), "'");
    if (!names.insert(tensor.name()).second) {
      return absl::InvalidArgumentError(absl::StrCat(who, " is there twice"));
    }
    if (ElementBytes(tensor.dtype()) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(who, " has no known element type (", static_cast<int>(tensor.dtype()), ")"));
    }
    const uint64_t elements = ElementCount(tensor);
    if (elements == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(who, " has no elements, or a size that is no size"));
    }
    if (elements > kMaxElements - total) {
      return absl::InvalidArgumentError(
          absl::StrCat(who, ": the tensors have more than ", kMaxElements, " elements in all"));
    }
    total += elements;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Slice>> Place(const std::vector<TensorSpec>& tensors, uint32_t shards,
                                         uint64_t slice_elements) {
  if (absl::Status status = CheckTensors(tensors); !status.ok()) return status;
  if (shards == 0) return absl::InvalidArgumentError("there is no shard to place tensors on");
  if (slice_elements == 0 || slice_elements % kBlockElements != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "slices of ", slice_elements, " elements: not a multiple of ", kBlockElements));
  }

  std::vector<Slice> slices;
  std::vector<uint64_t> bytes;
  for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    const uint64_t elements = ElementCount(tensors[tensor]);
    for (uint64_t begin = 0; begin < elements; begin += slice_elements) {
      Slice slice;
      slice.set_id(slices.size());
      slice.set_tensor(tensor);
      slice.set_begin(begin);
      slice.set_end(std::min(elements, begin + slice_elements));
      bytes.push_back((slice.end() - slice.begin()) * ElementBytes(tensors[tensor].dtype()));
      slices.push_back(std::move(slice));
    }
  }

  std::vector<size_t> order(slices.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return bytes[a] > bytes[b]; });
  std::set<std::pair<uint64_t, uint32_t>> load;  // bytes, shard
  for (uint32_t shard = 0; shard < shards; ++shard) load.insert({0, shard});
  for (size_t i : order) {
    auto lightest = load.extract(load.begin());
    slices[i].set_shard(lightest.value().second);
    lightest.value().first += bytes[i];
    load.insert(std::move(lightest));
  }
  return slices;
}

std::vector<uint64_t> ShardBytes(const std::vector<TensorSpec>& tensors,
                                 const std::vector<Slice>& slices, uint32_t shards) {
  std::vector<uint64_t> bytes(shards, 0);
  for (const Slice& slice : slices) {
    if (slice.shard() >= shards || slice.tensor() >= tensors.size()) continue;
    bytes[slice.shard()] +=
        (slice.end() - slice.begin()) * ElementBytes(tensors[slice.tensor()].dtype());
  }
  return bytes;
}

}  // namespace parley
