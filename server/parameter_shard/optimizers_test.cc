#include "server/parameter_shard/optimizers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/crc32.h"
#include "server/parameter_shard/optimizer_trainee.h"

namespace parley::testing {
namespace {

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

// All kinds, with each part of a formula that the others leave out.
std::vector<OptimizerSettings> AllVariants() {
  std::vector<OptimizerSettings> all;
  const auto add = [&](Kind kind, const std::function<void(OptimizerSettings&)>& set) {
    for (const double decay : {0.0, 0.01}) {
      OptimizerSettings settings = SettingsOf(kind);
      settings.weight_decay = decay;
      set(settings);
      all.push_back(settings);
    }
  };
  add(Kind::kSgd, [](OptimizerSettings&) {});
  add(Kind::kSgd, [](OptimizerSettings& o) { o.momentum = 0.9, o.dampening = 0.3; });
  add(Kind::kSgd, [](OptimizerSettings& o) { o.momentum = 0.9, o.nesterov = true; });
  for (const Kind kind : {Kind::kAdam, Kind::kAdamW}) {
    for (const bool amsgrad : {false, true}) {
      add(kind, [=](OptimizerSettings& o) { o.amsgrad = amsgrad; });
    }
  }
  add(Kind::kAdagrad, [](OptimizerSettings& o) { o.rate_decay = 0.01; });
  for (const bool centered : {false, true}) {
    for (const double momentum : {0.0, 0.9}) {
      add(Kind::kRmsProp,
          [=](OptimizerSettings& o) { o.centered = centered, o.momentum = momentum; });
    }
  }
  return all;
}

// The shard cuts tensors into slices, these into pieces for its threads and tiles (8192, 2048 and
// 1024 elements), wherever that may be: so begins and lengths about these sizes and those of
// vectors. Inside of longer arrays, as a slice's are: they need not be aligned.
template <class T>
void CompareCuts(const OptimizerSettings& settings) {
  constexpr size_t kElements = 8192 + 1024 + 67;
  constexpr size_t kSteps = 2;
  std::mt19937_64 random(3);
  const std::vector<float> start = RandomFloats(random, kElements);
  Trainee<T> whole(settings, {start.begin(), start.end()});
  std::vector<std::vector<float>> gradients;
  for (size_t step = 0; step < kSteps; ++step) {
    gradients.push_back(RandomFloats(random, kElements));
    ASSERT_TRUE(whole.Step(gradients.back()).ok());
  }
  Trainee<T> cut(settings, {start.begin(), start.end()});
  const Trainee<T> untouched = cut;
  for (const size_t begin : {0, 1, 2, 3, 5, 8, 13, 16, 1023, 1024, 1025, 8191, 8192, 8193}) {
    for (const size_t length :
         {1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 1023, 1024, 1025, 8191, 8192, 8193}) {
      if (begin + length > kElements) continue;
      SCOPED_TRACE(absl::StrCat("from ", begin, ", ", length, " elements"));
      for (size_t step = 0; step < kSteps; ++step) {
        const absl::Span<const float> gradient = gradients[step];
        ASSERT_TRUE(
            cut.Update(begin, length, gradient.subspan(begin, length), settings.rate, step + 1)
                .ok());
      }
      const auto compare = [&](std::vector<T>& values, const std::vector<T>& of_whole,
                               const std::vector<T>& before) {
        const auto at = static_cast<std::ptrdiff_t>(begin);
        const auto end = static_cast<std::ptrdiff_t>(begin + length);
        EXPECT_TRUE(std::equal(values.begin() + at, values.begin() + end, of_whole.begin() + at));
        // Nothing else was written; and it begins anew.
        std::copy(before.begin() + at, before.begin() + end, values.begin() + at);
        EXPECT_TRUE(values == before);
      };
      compare(cut.values, whole.values, untouched.values);
      for (const std::string& name : cut.names) {
        compare(cut.state[name], whole.state[name], untouched.state.at(name));
      }
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(OptimizersTest, TheResultDoesNotDependOnTheCut) {
  size_t variant = 0;
  for (const OptimizerSettings& settings : AllVariants()) {
    SCOPED_TRACE(absl::StrCat("variant ", variant++));
    CompareCuts<float>(settings);
    CompareCuts<double>(settings);
    if (::testing::Test::HasFailure()) return;
  }
}

// Beside the old values, wherever that begins: some of it can be written past the caches. mixed:
// the state stays in its place.
template <class T>
void CompareElsewhere(const OptimizerSettings& settings, size_t length, size_t offset, bool mixed) {
  constexpr size_t kAround = 8;
  constexpr T kUntouched = 77;
  std::mt19937_64 random(length);
  const std::vector<float> start = RandomFloats(random, length);
  const std::vector<float> gradient = RandomFloats(random, length);
  Trainee<T> in_place(settings, {start.begin(), start.end()});
  ASSERT_TRUE(in_place.Step(RandomFloats(random, length)).ok());
  const Trainee<T> before = in_place;
  ASSERT_TRUE(in_place.Step(gradient).ok());

  Trainee<T> old = before;
  const auto place = [&](std::vector<T>& memory) {
    memory.assign(length + kAround, kUntouched);
    return absl::MakeSpan(memory).subspan(offset, length);
  };
  std::vector<T> values;
  std::map<std::string, std::vector<T>> state;
  std::vector<StateTensor<T>> tensors;
  for (const std::string& name : old.names) {
    const absl::Span<T> from = absl::MakeSpan(old.state[name]);
    tensors.push_back({name, mixed ? FromTo<T>(from) : FromTo<T>(from, place(state[name]))});
  }
  ASSERT_TRUE(ApplyUpdate<T>(settings, settings.rate, in_place.steps, gradient,
                             FromTo<T>(absl::MakeSpan(old.values), place(values)), tensors)
                  .ok());
  const auto expect = [&](const std::vector<T>& found, const std::vector<T>& expected) {
    for (size_t i = 0; i < found.size(); ++i) {
      const bool inside = i >= offset && i < offset + length;
      ASSERT_EQ(found[i], inside ? expected[i - offset] : kUntouched) << "at " << i;
    }
  };
  expect(values, in_place.values);
  EXPECT_TRUE(old.values == before.values);
  for (const std::string& name : old.names) {
    if (mixed) {
      EXPECT_TRUE(old.state[name] == in_place.state[name]) << name;
    } else {
      expect(state[name], in_place.state[name]);
      EXPECT_TRUE(old.state[name] == before.state.at(name)) << name;
    }
  }
}

TEST(OptimizersTest, NorOnWhereItIsWritten) {
  size_t variant = 0;
  for (const OptimizerSettings& settings : AllVariants()) {
    for (const size_t length : {1, 7, 8, 15, 16, 17, 31, 32, 33, 100, 1025}) {
      for (size_t offset = 0; offset <= 5; ++offset) {
        for (const bool mixed : {false, true}) {
          SCOPED_TRACE(absl::StrCat("variant ", variant, ", ", length, " elements at ", offset,
                                    mixed ? ", mixed" : ""));
          CompareElsewhere<float>(settings, length, offset, mixed);
          CompareElsewhere<double>(settings, length, offset, mixed);
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
    ++variant;
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
}  // namespace parley::testing
