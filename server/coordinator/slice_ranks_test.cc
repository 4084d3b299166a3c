#include "server/coordinator/slice_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/tensor.h"
#include "server/coordinator/placement.h"

namespace parley {
namespace {

TensorSpec Tensor(int64_t elements, bool buffer = false) {
  TensorSpec tensor;
  tensor.set_dtype(F32);
  tensor.add_shape(elements);
  tensor.set_buffer(buffer);
  return tensor;
}

std::vector<TensorSpec> Model() {
  std::vector<TensorSpec> tensors = {Tensor(3'000'000), Tensor(1000),       Tensor(64, true),
                                     Tensor(700'000),   Tensor(900, false), Tensor(1'500'000)};
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i].set_name("t" + std::to_string(i));
  return tensors;
}

TEST(SliceRanksTest, AllRanksHaveAboutAsManyBytes) {
  const std::vector<TensorSpec> tensors = Model();
  const std::vector<Slice> slices = *Place(tensors, 2);
  for (const uint32_t group : {2, 3, 4, 8}) {
    const std::vector<uint32_t> ranks = SliceRanks(tensors, slices, group);
    ASSERT_EQ(ranks.size(), slices.size());
    std::vector<uint64_t> bytes(group, 0);
    for (size_t i = 0; i < slices.size(); ++i) {
      ASSERT_LT(ranks[i], group);
      bytes[ranks[i]] += (slices[i].end() - slices[i].begin()) * sizeof(float);
    }
    const auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
    EXPECT_LE(*most - *least, 1u << 20) << "no more than the largest slice, with " << group;
  }
}

TEST(SliceRanksTest, WhereSlicesLieDoesNotMatter) {
  const std::vector<TensorSpec> tensors = Model();
  const auto with = [&](uint32_t shards) {
    return SliceRanks(tensors, *Place(tensors, shards), 4);
  };
  EXPECT_EQ(with(1), with(2));
  EXPECT_EQ(with(1), with(7));
}

TEST(SliceRanksTest, BuffersAreRankZeros) {
  const std::vector<TensorSpec> tensors = Model();
  const std::vector<Slice> slices = *Place(tensors, 2);
  const std::vector<uint32_t> ranks = SliceRanks(tensors, slices, 4);
  for (size_t i = 0; i < slices.size(); ++i) {
    if (tensors[slices[i].tensor()].buffer()) {
      EXPECT_EQ(ranks[i], 0u);
    }
  }
}

TEST(SliceRanksTest, NeighbouringSlicesAreOfDifferentRanks) {
  const std::vector<TensorSpec> tensors = {Tensor(4 << 20)};
  std::vector<TensorSpec> named = tensors;
  named[0].set_name("w");
  const std::vector<uint32_t> ranks = SliceRanks(named, *Place(named, 2), 4);
  ASSERT_GT(ranks.size(), 4u);
  for (size_t i = 0; i + 4 < ranks.size(); ++i) EXPECT_EQ(ranks[i], i % 4);
}

}  // namespace
}  // namespace parley
