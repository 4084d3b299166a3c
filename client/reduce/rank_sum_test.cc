#include "client/reduce/rank_sum.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace parley {
namespace {

template <class T>
absl::Span<const std::byte> Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)};
}

// What a shard makes of single workers' contributions (GradientAccumulator): float32, from -0.
template <class T>
std::vector<float> OnAShard(const std::vector<std::vector<T>>& gradients,
                            const std::vector<double>& weights) {
  std::vector<float> sum(gradients[0].size(), -0.0f);
  for (size_t rank = 0; rank < gradients.size(); ++rank) {
    const T weight = static_cast<T>(weights[rank]);
    for (size_t i = 0; i < sum.size(); ++i) {
      sum[i] += static_cast<float>(gradients[rank][i] * weight);
    }
  }
  return sum;
}

template <class T>
void ExpectTheShardsBits(DataType dtype) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal(0, 1e3);
  for (const size_t elements : {1, 7, 1024, 1025, 5000}) {
    for (const size_t ranks : {1, 2, 3, 8}) {
      std::vector<std::vector<T>> gradients(ranks);
      std::vector<double> weights;
      for (auto& gradient : gradients) {
        for (size_t i = 0; i < elements; ++i) {
          gradient.push_back(static_cast<T>(random() % 9 == 0 ? -0.0 : normal(random)));
        }
        weights.push_back(random() % 2 == 0 ? 1 : 1. / (1 + random() % 10));
      }
      const std::vector<float> expected = OnAShard(gradients, weights);
      // In the place of each of them.
      for (size_t owner = 0; owner < ranks; ++owner) {
        auto memory = gradients;
        std::vector<RankGradient> inputs;
        for (size_t rank = 0; rank < ranks; ++rank) {
          inputs.push_back({Bytes(memory[rank]).data(), weights[rank]});
        }
        AddRanks(dtype, inputs,
                 {reinterpret_cast<std::byte*>(memory[owner].data()), elements * sizeof(T)});
        for (size_t i = 0; i < elements; ++i) {
          ASSERT_EQ(std::bit_cast<uint32_t>(static_cast<float>(memory[owner][i])),
                    std::bit_cast<uint32_t>(expected[i]))
              << "element " << i << " of " << elements << ", rank " << owner << " of " << ranks;
        }
      }
    }
  }
}

TEST(RankSumTest, TheSumIsBitwiseWhatAShardMakesOfSingleWorkers) {
  ExpectTheShardsBits<float>(F32);
  ExpectTheShardsBits<double>(F64);
}

}  // namespace
}  // namespace parley
