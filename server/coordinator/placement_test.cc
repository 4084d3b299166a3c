#include "server/coordinator/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>

#include "common/tensor.h"

namespace parley {
namespace {

TensorSpec Tensor(const std::string& name, const std::vector<int64_t>& shape,
                  DataType dtype = F32) {
  TensorSpec tensor;
  tensor.set_name(name);
  tensor.set_dtype(dtype);
  for (int64_t size : shape) tensor.add_shape(size);
  return tensor;
}

// torchvision.models.vgg19(): sixteen 3x3 convolutions and three linear layers.
std::vector<TensorSpec> Vgg19() {
  std::vector<TensorSpec> tensors;
  const std::vector<int64_t> widths = {64,  64,  0,   128, 128, 0,   256, 256, 256, 256, 0,
                                       512, 512, 512, 512, 0,   512, 512, 512, 512, 0};
  int64_t inputs = 3;
  int layer = 0;
  for (int64_t outputs : widths) {
    if (outputs == 0) {  // pooling
      layer += 1;
      continue;
    }
    const std::string name = "features." + std::to_string(layer);
    tensors.push_back(Tensor(name + ".weight", {outputs, inputs, 3, 3}));
    tensors.push_back(Tensor(name + ".bias", {outputs}));
    inputs = outputs;
    layer += 2;  // and the ReLU
  }
  const std::vector<std::pair<std::string, std::vector<int64_t>>> classifier = {
      {"classifier.0", {4096, 512 * 7 * 7}},
      {"classifier.3", {4096, 4096}},
      {"classifier.6", {1000, 4096}}};
  for (const auto& [name, shape] : classifier) {
    tensors.push_back(Tensor(name + ".weight", shape));
    tensors.push_back(Tensor(name + ".bias", {shape[0]}));
  }
  return tensors;
}

std::vector<TensorSpec> RandomModel(uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::vector<DataType> types = {F32, F64, F16, BF16, I64, U8};
  std::vector<TensorSpec> tensors;
  const size_t count = 1 + random() % 40;
  for (size_t i = 0; i < count; ++i) {
    std::vector<int64_t> shape;
    const size_t rank = random() % 4;
    for (size_t d = 0; d < rank; ++d) shape.push_back(1 + random() % (rank == 1 ? 3'000'000 : 120));
    tensors.push_back(Tensor("t" + std::to_string(i), shape, types[random() % types.size()]));
  }
  return tensors;
}

double FullestOverMean(const std::vector<uint64_t>& bytes) {
  const double sum = std::accumulate(bytes.begin(), bytes.end(), 0.0);
  return *std::max_element(bytes.begin(), bytes.end()) / (sum / bytes.size());
}

TEST(PlacementTest, Vgg19HasTorchvisionsParameterCount) {
  uint64_t elements = 0;
  for (const TensorSpec& tensor : Vgg19()) elements += ElementCount(tensor);
  EXPECT_EQ(elements, 143'667'240u);
  EXPECT_EQ(Vgg19().size(), 38u);
  EXPECT_EQ(Vgg19()[30].name(), "features.34.weight");
}

TEST(PlacementTest, Vgg19IsSpreadEvenlyOverTwoToSevenShards) {
  for (uint32_t shards = 2; shards <= 7; ++shards) {
    const auto slices = Place(Vgg19(), shards);
    ASSERT_TRUE(slices.ok()) << slices.status();
    EXPECT_LE(FullestOverMean(ShardBytes(Vgg19(), *slices, shards)), 1.05) << shards << " shards";
  }
}

TEST(PlacementTest, EveryElementIsInExactlyOneSlice) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const auto tensors = RandomModel(seed);
    const uint32_t shards = 1 + seed % 7;
    const auto slices = Place(tensors, shards);
    ASSERT_TRUE(slices.ok()) << slices.status();
    // In order of tensor and begin without a gap: then each element is in one, and in one only.
    std::vector<uint64_t> covered(tensors.size(), 0);
    for (size_t i = 0; i < slices->size(); ++i) {
      const Slice& slice = (*slices)[i];
      ASSERT_EQ(slice.id(), i) << "seed " << seed;
      ASSERT_LT(slice.tensor(), tensors.size());
      ASSERT_LT(slice.shard(), shards);
      ASSERT_EQ(slice.begin(), covered[slice.tensor()]) << "seed " << seed;
      ASSERT_LT(slice.begin(), slice.end());
      ASSERT_LE(slice.end() - slice.begin(), kSliceElements);
      ASSERT_EQ(slice.begin() % kBlockElements, 0u);
      covered[slice.tensor()] = slice.end();
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      ASSERT_EQ(covered[i], ElementCount(tensors[i])) << "seed " << seed;
    }
  }
}

TEST(PlacementTest, FullestShardIsAtMostOneSliceAboveTheMean) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const auto tensors = RandomModel(seed);
    const uint32_t shards = 1 + seed % 7;
    const auto slices = Place(tensors, shards);
    ASSERT_TRUE(slices.ok());
    uint64_t largest = 0;
    for (const Slice& slice : *slices) {
      const uint64_t bytes =
          (slice.end() - slice.begin()) * ElementBytes(tensors[slice.tensor()].dtype());
      largest = std::max(largest, bytes);
    }
    const auto bytes = ShardBytes(tensors, *slices, shards);
    const double mean = std::accumulate(bytes.begin(), bytes.end(), 0.0) / shards;
    EXPECT_LE(*std::max_element(bytes.begin(), bytes.end()), mean + largest) << "seed " << seed;
  }
}

TEST(PlacementTest, TheSameModelIsAlwaysPlacedTheSame) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const auto once = Place(RandomModel(seed), 3);
    const auto again = Place(RandomModel(seed), 3);
    ASSERT_TRUE(once.ok() && again.ok());
    ASSERT_EQ(once->size(), again->size());
    for (size_t i = 0; i < once->size(); ++i) {
      EXPECT_EQ((*once)[i].SerializeAsString(), (*again)[i].SerializeAsString());
    }
  }
}

TEST(PlacementTest, BadTensorsAreRefusedByName) {
  const std::vector<std::vector<TensorSpec>> models = {
      {},
      {Tensor("", {2})},
      {Tensor("bad", {2}), Tensor("bad", {2})},
      {Tensor("bad", {2}, DATA_TYPE_UNSPECIFIED)},
      {Tensor("bad", {2}, static_cast<DataType>(77))},
      {Tensor("bad", {2, -1})},
      {Tensor("bad", {0})},
      {Tensor("bad", {int64_t{1} << 40, int64_t{1} << 40})},
      {Tensor("good", {int64_t{1} << 37}), Tensor("bad", {int64_t{1} << 38})},
  };
  for (const auto& tensors : models) {
    const auto slices = Place(tensors, 2);
    EXPECT_EQ(slices.status().code(), absl::StatusCode::kInvalidArgument);
    if (!tensors.empty() && !tensors[0].name().empty()) {
      EXPECT_NE(slices.status().message().find("'bad'"), absl::string_view::npos)
          << slices.status();
    }
  }
  EXPECT_FALSE(Place({Tensor("a", {2})}, 0).ok());
  EXPECT_FALSE(Place({Tensor("a", {2})}, 1, kBlockElements + 1).ok());
}

}  // namespace
}  // namespace parley
