// State that is owed steps of zeros, and numbers that are almost zero.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "server/parameter_shard/optimizer_trainee.h"
#include "server/parameter_shard/optimizers.h"

namespace parley::testing {
namespace {

// Steps of zeros that the state has not had, then one of `gradient`, against all of them in turn.
template <class T>
void CompareOwed(const OptimizerSettings& settings, size_t count) {
  std::mt19937_64 random(count);
  const std::vector<float> start = RandomFloats(random, count);
  const std::vector<float> zeros(count, 0);
  for (uint32_t owed = 0; owed <= kMostOwed; ++owed) {
    for (const bool of_zeros : {false, true}) {
      SCOPED_TRACE(absl::StrCat(count, " elements, ", owed, " steps owed"));
      Trainee<T> all(settings, {start.begin(), start.end()});
      ASSERT_TRUE(all.Step(RandomFloats(random, count)).ok());
      all.state["exp_avg"][0] = static_cast<T>(-0.0);
      std::map<std::string, std::vector<T>> state = all.state;
      for (uint32_t step = 0; step < owed; ++step) ASSERT_TRUE(all.Step(zeros).ok());
      std::map<std::string, std::vector<T>> settled = state;
      std::vector<StateTensor<T>> tensors;
      for (const std::string& name : all.names) {
        tensors.push_back(
            {name, {absl::MakeConstSpan(state[name]), absl::MakeSpan(settled[name])}});
      }
      ASSERT_TRUE(ApplyOwed<T>(settings, owed, tensors).ok());
      for (const std::string& name : all.names) {
        EXPECT_EQ(BitsOf(settled[name]), BitsOf(all.state[name])) << name;
      }
      std::vector<float> gradient = of_zeros ? zeros : RandomFloats(random, count);
      if (!of_zeros) gradient[0] = -0.0f;  // which adds nothing to -0
      const std::vector<T> before = all.values;
      ASSERT_TRUE(all.Step(gradient).ok());
      // Written elsewhere, in place, or not at all.
      std::vector<T> values(count);
      const FromTo<T> parameter{absl::MakeConstSpan(before), absl::MakeSpan(values)};
      ASSERT_TRUE(
          ApplyUpdate<T>(settings, settings.rate, all.steps, gradient, parameter, tensors, owed)
              .ok());
      EXPECT_EQ(BitsOf(values), BitsOf(all.values));
      for (const std::string& name : all.names) {
        EXPECT_EQ(BitsOf(settled[name]), BitsOf(all.state[name])) << name;
      }
      for (StateTensor<T>& tensor : tensors) tensor.values.to = {};
      values.assign(count, 0);
      ASSERT_TRUE(
          ApplyUpdate<T>(settings, settings.rate, all.steps, gradient, parameter, tensors, owed)
              .ok());
      EXPECT_EQ(BitsOf(values), BitsOf(all.values));
      for (StateTensor<T>& tensor : tensors) {
        std::vector<T>& here = state[std::string(tensor.name)];
        tensor.values = FromTo<T>(absl::MakeSpan(here));
      }
      values = before;
      ASSERT_TRUE(ApplyUpdate<T>(settings, settings.rate, all.steps, gradient,
                                 absl::MakeSpan(values), tensors, owed)
                      .ok());
      EXPECT_EQ(BitsOf(values), BitsOf(all.values));
      for (const std::string& name : all.names) {
        EXPECT_EQ(BitsOf(state[name]), BitsOf(all.state[name])) << name;
      }
    }
  }
}

TEST(OptimizersTest, StepsOfZerosCanBeOwed) {
  for (const Kind kind : {Kind::kAdam, Kind::kAdamW}) {
    OptimizerSettings settings = SettingsOf(kind);
    if (kind == Kind::kAdamW) settings.weight_decay = 0.1;
    ASSERT_TRUE(CanOwe(settings));
    for (const size_t count : {1, 15, 16, 1000}) {
      CompareOwed<float>(settings, count);
      CompareOwed<double>(settings, count);
    }
  }
}

TEST(OptimizersTest, WhatChangesByMoreThanItselfIsNeverOwed) {
  OptimizerSettings decayed = SettingsOf(Kind::kAdam);
  decayed.weight_decay = 0.1;
  OptimizerSettings largest = SettingsOf(Kind::kAdamW);
  largest.amsgrad = true;
  for (const OptimizerSettings& settings :
       {decayed, largest, SettingsOf(Kind::kSgd), SettingsOf(Kind::kAdagrad),
        SettingsOf(Kind::kRmsProp)}) {
    ASSERT_FALSE(CanOwe(settings));
    Trainee<float> trainee(settings, {1, 2});
    std::vector<StateTensor<float>> state;
    for (const std::string& name : trainee.names) {
      state.push_back({name, absl::MakeSpan(trainee.state[name])});
    }
    const std::vector<float> gradient = {0, 0};
    const auto apply = [&](uint32_t owed) {
      return ApplyUpdate<float>(settings, 0.1, 1, gradient, absl::MakeSpan(trainee.values), state,
                                owed);
    };
    EXPECT_TRUE(apply(0).ok());
    EXPECT_TRUE(absl::IsInvalidArgument(apply(1)));
    EXPECT_TRUE(absl::IsInvalidArgument(ApplyOwed<float>(settings, 1, state)));
    if (state.empty()) continue;
    state[0].values.to = {};
    EXPECT_TRUE(absl::IsInvalidArgument(apply(0)));
  }
}

// Else a row whose gradient stays away would cost much more than others, for good.
TEST(OptimizersTest, WhatIsTooSmallForANormalNumberIsZero) {
  const float smallest = std::numeric_limits<float>::denorm_min();
  Trainee<float> trainee(SettingsOf(Kind::kAdam), std::vector<float>(20, 1));
  trainee.state["exp_avg"].assign(20, 1e-39f);
  trainee.state["exp_avg_sq"].assign(20, std::numeric_limits<float>::min());
  ASSERT_TRUE(trainee.Step(std::vector<float>(20, 0)).ok());
  EXPECT_EQ(trainee.state["exp_avg"], std::vector<float>(20, 0));
  EXPECT_EQ(trainee.state["exp_avg_sq"], std::vector<float>(20, 0));
  EXPECT_EQ(trainee.values, std::vector<float>(20, 1));
  volatile float as_before = smallest;
  as_before = as_before * 2;
  EXPECT_GT(as_before, 0) << "that was for the step alone";
}

}  // namespace
}  // namespace parley::testing
