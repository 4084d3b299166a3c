#include "server/parameter_shard/optimizers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "common/crc32.h"

namespace parley {
namespace {

using Kind = OptimizerSettings::Kind;

// A parameter with its optimizer's state.
template <class T>
struct Trainee {
  explicit Trainee(const OptimizerSettings& settings, std::vector<T> start)
      : settings(settings), names(OptimizerStateNames(settings)), values(std::move(start)) {
    for (const std::string& name : names) {
      state[name].assign(values.size(), static_cast<T>(InitialStateValue(settings, name)));
    }
  }

  absl::Status Step(const std::vector<float>& gradient) { return Step(gradient, settings.rate); }
  absl::Status Step(const std::vector<float>& gradient, double rate) {
    std::vector<StateTensor<T>> tensors;
    for (const std::string& name : names) tensors.push_back({name, absl::MakeSpan(state[name])});
    return ApplyUpdate<T>(settings, rate, ++steps, gradient, absl::MakeSpan(values), tensors);
  }

  OptimizerSettings settings;
  std::vector<std::string> names;
  std::vector<T> values;
  std::map<std::string, std::vector<T>> state;
  uint64_t steps = 0;
};

std::vector<float> RandomFloats(std::mt19937_64& random, size_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

OptimizerSettings SettingsOf(Kind kind) {
  OptimizerSettings settings;
  settings.kind = kind;
  settings.rate = 0.01;
  settings.beta1 = 0.9;
  settings.beta2 = 0.999;
  settings.alpha = 0.99;
  settings.epsilon = 1e-8;
  return settings;
}

TEST(OptimizersTest, PlainSgdIsOneFusedMultiplyAdd) {
  std::mt19937_64 random(1);
  Trainee<float> trainee(SettingsOf(Kind::kSgd), RandomFloats(random, 1001));
  std::vector<float> expected = trainee.values;
  for (int step = 0; step < 20; ++step) {
    const std::vector<float> gradient = RandomFloats(random, 1001);
    for (size_t i = 0; i < expected.size(); ++i) {
      expected[i] = std::fma(-0.01f, gradient[i], expected[i]);
    }
    ASSERT_TRUE(trainee.Step(gradient).ok());
    ASSERT_EQ(trainee.values, expected);
  }
}

// The textbook's formulas in double, one element at a time, against the float32 loops.
struct Scalar {
  double p;
  std::map<std::string, double> s;
};
using Textbook = std::function<void(const OptimizerSettings&, int step, double g, Scalar&)>;

void Compare(const OptimizerSettings& settings, const Textbook& textbook) {
  std::mt19937_64 random(7);
  Trainee<float> trainee(settings, RandomFloats(random, 67));
  Trainee<double> precise(settings, {trainee.values.begin(), trainee.values.end()});
  std::vector<Scalar> expected;
  for (const float value : trainee.values) expected.push_back({value, {}});
  for (Scalar& scalar : expected) {
    for (const std::string& name : trainee.names)
      scalar.s[name] = InitialStateValue(settings, name);
  }
  double largest = 0;
  double difference = 0;
  double precise_difference = 0;
  for (int step = 1; step <= 100; ++step) {
    const std::vector<float> gradient = RandomFloats(random, 67);
    ASSERT_TRUE(trainee.Step(gradient).ok());
    ASSERT_TRUE(precise.Step(gradient).ok());
    for (size_t i = 0; i < expected.size(); ++i) {
      textbook(settings, step, gradient[i], expected[i]);
      largest = std::max(largest, std::abs(expected[i].p));
      difference = std::max(difference, std::abs(expected[i].p - trainee.values[i]));
      precise_difference =
          std::max(precise_difference, std::abs(expected[i].p - precise.values[i]));
    }
  }
  EXPECT_LT(difference / largest, 5e-6);  // float32's own rounding over 100 steps
  EXPECT_LT(precise_difference / largest, 1e-13);
}

TEST(OptimizersTest, SgdWithMomentumDampeningNesterovAndDecay) {
  const Textbook textbook = [](const OptimizerSettings& o, int step, double g, Scalar& x) {
    g += o.weight_decay * x.p;
    double& b = x.s["momentum_buffer"];
    b = step == 1 ? g : o.momentum * b + (1 - o.dampening) * g;
    x.p -= o.rate * (o.nesterov ? g + o.momentum * b : b);
  };
  OptimizerSettings settings = SettingsOf(Kind::kSgd);
  settings.momentum = 0.9;
  settings.weight_decay = 0.1;
  Compare(settings, textbook);
  settings.dampening = 0.3;
  Compare(settings, textbook);
  settings.dampening = 0;
  settings.nesterov = true;
  Compare(settings, textbook);
}

TEST(OptimizersTest, AdamAdamWAndAmsgrad) {
  const Textbook textbook = [](const OptimizerSettings& o, int step, double g, Scalar& x) {
    if (o.kind == Kind::kAdamW) {
      x.p -= o.rate * o.weight_decay * x.p;
    } else {
      g += o.weight_decay * x.p;
    }
    double& m = x.s["exp_avg"];
    double& v = x.s["exp_avg_sq"];
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    double top = v;
    if (o.amsgrad) {
      double& largest = x.s["max_exp_avg_sq"];
      top = largest = std::max(largest, v);
    }
    const double mean = m / (1 - std::pow(o.beta1, step));
    x.p -= o.rate * mean / (std::sqrt(top / (1 - std::pow(o.beta2, step))) + o.epsilon);
  };
  for (const Kind kind : {Kind::kAdam, Kind::kAdamW}) {
    for (const bool amsgrad : {false, true}) {
      for (const double decay : {0.0, 0.05}) {
        for (const double beta1 : {0.9, 0.3}) {
          OptimizerSettings settings = SettingsOf(kind);
          settings.amsgrad = amsgrad;
          settings.weight_decay = decay;
          settings.beta1 = beta1;
          Compare(settings, textbook);
        }
      }
    }
  }
}

TEST(OptimizersTest, AdagradWithRateDecayAndInitialAccumulator) {
  OptimizerSettings settings = SettingsOf(Kind::kAdagrad);
  settings.rate_decay = 0.01;
  settings.weight_decay = 0.02;
  settings.initial_accumulator = 0.5;
  Compare(settings, [](const OptimizerSettings& o, int step, double g, Scalar& x) {
    g += o.weight_decay * x.p;
    x.s["sum"] += g * g;
    x.p -= o.rate / (1 + (step - 1) * o.rate_decay) * g / (std::sqrt(x.s["sum"]) + o.epsilon);
  });
}

TEST(OptimizersTest, RmsPropWithMomentumAndCentered) {
  for (const bool centered : {false, true}) {
    for (const double momentum : {0.0, 0.9}) {
      for (const double alpha : {0.99, 0.4}) {
        OptimizerSettings settings = SettingsOf(Kind::kRmsProp);
        settings.centered = centered;
        settings.momentum = momentum;
        settings.alpha = alpha;
        settings.weight_decay = 0.01;
        settings.epsilon = 1e-2;  // centered: the first steps' roots are near 0
        Compare(settings, [](const OptimizerSettings& o, int, double g, Scalar& x) {
          g += o.weight_decay * x.p;
          double& v = x.s["square_avg"];
          v = o.alpha * v + (1 - o.alpha) * g * g;
          double square = v;
          if (o.centered) {
            double& m = x.s["grad_avg"];
            m = o.alpha * m + (1 - o.alpha) * g;
            square -= m * m;
          }
          const double update = g / (std::sqrt(square) + o.epsilon);
          double& b = x.s["momentum_buffer"];
          b = o.momentum * b + update;
          x.p -= o.rate * (o.momentum > 0 ? b : update);
        });
      }
    }
  }
}

TEST(OptimizersTest, TheResultDoesNotDependOnTheCut) {
  for (const Kind kind : {Kind::kSgd, Kind::kAdam, Kind::kAdamW, Kind::kAdagrad, Kind::kRmsProp}) {
    std::mt19937_64 random(3);
    OptimizerSettings settings = SettingsOf(kind);
    settings.momentum = 0.9;
    settings.weight_decay = 0.01;
    const std::vector<float> start = RandomFloats(random, 103);
    const size_t cut = 37;
    Trainee<float> whole(settings, start);
    Trainee<float> left(settings, {start.begin(), start.begin() + cut});
    Trainee<float> right(settings, {start.begin() + cut, start.end()});
    for (int step = 0; step < 10; ++step) {
      const std::vector<float> gradient = RandomFloats(random, 103);
      ASSERT_TRUE(whole.Step(gradient).ok());
      ASSERT_TRUE(left.Step({gradient.begin(), gradient.begin() + cut}).ok());
      ASSERT_TRUE(right.Step({gradient.begin() + cut, gradient.end()}).ok());
    }
    std::vector<float> joined = left.values;
    joined.insert(joined.end(), right.values.begin(), right.values.end());
    EXPECT_EQ(joined, whole.values);
  }
}

// Not from a distribution of the standard library, whose numbers are its own.
std::vector<float> PortableFloats(std::mt19937_64& random, size_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random() >> 40) * 0x1p-23f - 1;
  return values;
}

template <class T>
uint32_t SumAfterSteps(const OptimizerSettings& settings) {
  std::mt19937_64 random(11);
  const std::vector<float> start = PortableFloats(random, 1003);
  Trainee<T> trainee(settings, {start.begin(), start.end()});
  for (int step = 0; step < 50; ++step) {
    EXPECT_TRUE(trainee.Step(PortableFloats(random, start.size())).ok());
  }
  uint32_t sum = 0;
  const auto add = [&sum](const std::vector<T>& values) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(values.data());
    sum = Crc32(sum, absl::MakeConstSpan(bytes, values.size() * sizeof(T)));
  };
  add(trainee.values);
  for (const auto& [name, values] : trainee.state) add(values);
  return sum;
}

// This file is compiled twice: optimizers_baseline_test has the loops as they are on a machine
// without AVX2.
TEST(OptimizersTest, TheBitsAreTheSameWithEveryInstructionSet) {
  const auto expect = [](const char* name, const OptimizerSettings& settings, const char* of_float,
                         const char* of_double) {
    EXPECT_EQ(Crc32Text(SumAfterSteps<float>(settings)), of_float) << name;
    EXPECT_EQ(Crc32Text(SumAfterSteps<double>(settings)), of_double) << name;
  };
  OptimizerSettings settings = SettingsOf(Kind::kSgd);
  expect("SGD", settings, "2b646e90", "daa32823");
  settings.momentum = 0.9;
  settings.weight_decay = 0.01;
  settings.nesterov = true;
  expect("SGD, Nesterov, decay", settings, "959b2270", "8f4d6d58");
  settings = SettingsOf(Kind::kAdam);
  settings.weight_decay = 0.01;
  settings.amsgrad = true;
  expect("Adam", settings, "6ecc2ffc", "5d5fcc86");
  settings.kind = Kind::kAdamW;
  settings.amsgrad = false;
  expect("AdamW", settings, "51b1a0ae", "b38eb498");
  settings = SettingsOf(Kind::kAdagrad);
  settings.weight_decay = 0.01;
  expect("Adagrad", settings, "0b0a6f10", "34cfe19b");
  settings = SettingsOf(Kind::kRmsProp);
  settings.momentum = 0.9;
  settings.centered = true;
  settings.epsilon = 1e-2;
  expect("RMSprop", settings, "c372e18a", "be0587a3");
}

TEST(OptimizersTest, WrongLengthsAndMissingStateAreRefused) {
  Trainee<float> trainee(SettingsOf(Kind::kAdam), {1, 2});
  EXPECT_TRUE(absl::IsInvalidArgument(trainee.Step({1})));
  trainee.state["exp_avg"].resize(1);
  EXPECT_TRUE(absl::IsInvalidArgument(trainee.Step({1, 1})));
  trainee.names = {"exp_avg_sq"};
  EXPECT_TRUE(absl::IsInvalidArgument(trainee.Step({1, 1})));
  EXPECT_EQ(trainee.values, std::vector<float>({1, 2}));
}

}  // namespace
}  // namespace parley
