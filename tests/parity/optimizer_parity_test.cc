// Bar 5: the shard's optimizers against torch::optim, 200 steps in float32.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/job/learning_rate.h"
#include "server/parameter_shard/gradient_norm.h"
#include "server/parameter_shard/optimizers.h"
#include "tests/parity/job_text.h"

namespace parley {
namespace {

using torch::Tensor;
using Parameters = std::vector<Tensor>;
using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(Parameters)>;

constexpr int kSteps = 200;
constexpr double kBar = 1e-6;

// Sizes around the kernels' vector lengths, a scalar, and one whose norm has more than one block.
const std::vector<std::pair<std::string, std::vector<int64_t>>> kShapes = {
    {"conv.weight", {50, 3, 5, 5}},
    {"conv.bias", {50}},
    {"scalar", {}},
    {"odd", {7, 11}},
    {"large", {70'001}},
};

struct Case {
  std::string name;
  std::string optimizer;  // of the job file
  MakeOptimizer torch;
};

// What a shard does for whole tensors: ApplyUpdate with the settings and rate of the job. T: of the
// parameters.
template <class T = float>
class ShardOptimizer {
 public:
  explicit ShardOptimizer(const JobConfig& job) : job_(job) {}

  void Step(uint64_t step, const std::string& name, Tensor& parameter, const Tensor& gradient) {
    const OptimizerSettings settings = SettingsFor(job_, name);
    if (step <= settings.frozen_until_step) return;
    auto& state = state_[name];
    if (state.empty()) {
      for (const std::string& tensor : OptimizerStateNames(settings)) {
        state[tensor] = torch::full_like(parameter, InitialStateValue(settings, tensor));
      }
    }
    std::vector<StateTensor<T>> tensors;
    for (auto& [state_name, tensor] : state) tensors.push_back({state_name, Elements<T>(tensor)});
    const double rate = settings.rate * LearningRateFactor(job_, {.step = step});
    ASSERT_TRUE(ApplyUpdate<T>(settings, rate, ++steps_[name], Elements<float>(gradient),
                               Elements<T>(parameter), tensors)
                    .ok());
  }

 private:
  template <class E>
  static absl::Span<E> Elements(const Tensor& tensor) {
    return {tensor.data_ptr<E>(), static_cast<size_t>(tensor.numel())};
  }

  const JobConfig job_;
  std::map<std::string, std::map<std::string, Tensor>> state_;
  std::map<std::string, uint64_t> steps_;
};

Parameters InitialValues() {
  at::set_num_threads(1);
  torch::manual_seed(5);
  Parameters parameters;
  for (const auto& [name, shape] : kShapes) parameters.push_back(torch::randn(shape) * 0.3);
  return parameters;
}

double Difference(const Tensor& ours, const Tensor& theirs) {
  return ((ours - theirs).abs().max() / theirs.abs().max()).item<double>();
}

// LibTorch's kernels fuse multiply and add where the machine can, as ours always do. Its sqrt
// (MKL's) is off by a last bit now and then, so only what takes no root is the same bit for bit.
bool IsBitwise(const Case& c) {
  return c.name.rfind("Sgd", 0) == 0 && __builtin_cpu_supports("avx2") != 0 &&
         __builtin_cpu_supports("fma") != 0;
}

// The gradients of a small training: a pull to a target, and some noise. Noise and target are the
// same on both sides, w is each side's own, so that differences feed back as in a real training.
// (Centered RMSprop, whose variance is a difference of nearly equal numbers, turns one differing
// rounding into more than the bar: only the same operations in the same order pass.)
class Gradients {
 public:
  Gradients() {
    torch::manual_seed(6);
    for (const auto& [name, shape] : kShapes) {
      targets_.push_back(torch::randn(shape) + 1);
    }
  }
  void DrawNoise() {
    noise_.clear();
    for (const Tensor& target : targets_) noise_.push_back(torch::randn_like(target) * 0.02);
  }
  Tensor At(size_t i, const Tensor& parameter) const {
    const torch::NoGradGuard no_grad;
    return (parameter - targets_[i]) * 0.2 + noise_[i];
  }

 private:
  std::vector<Tensor> targets_;
  std::vector<Tensor> noise_;
};

std::unique_ptr<torch::optim::Optimizer> Sgd(Parameters parameters,
                                             const torch::optim::SGDOptions& options) {
  return std::make_unique<torch::optim::SGD>(std::move(parameters), options);
}
std::unique_ptr<torch::optim::Optimizer> Adam(Parameters parameters,
                                              const torch::optim::AdamOptions& options) {
  return std::make_unique<torch::optim::Adam>(std::move(parameters), options);
}
std::unique_ptr<torch::optim::Optimizer> AdamW(Parameters parameters,
                                               const torch::optim::AdamWOptions& options) {
  return std::make_unique<torch::optim::AdamW>(std::move(parameters), options);
}
std::unique_ptr<torch::optim::Optimizer> Adagrad(Parameters parameters,
                                                 const torch::optim::AdagradOptions& options) {
  return std::make_unique<torch::optim::Adagrad>(std::move(parameters), options);
}
std::unique_ptr<torch::optim::Optimizer> RmsProp(Parameters parameters,
                                                 const torch::optim::RMSpropOptions& options) {
  return std::make_unique<torch::optim::RMSprop>(std::move(parameters), options);
}

std::vector<Case> Cases() {
  using namespace torch::optim;
  using P = Parameters;
  return {
      {"Sgd", "sgd { rate: 0.05 }", [](P p) { return Sgd(p, SGDOptions(0.05)); }},
      {"SgdWeightDecay", "sgd { rate: 0.05 weight_decay: 0.01 }",
       [](P p) { return Sgd(p, SGDOptions(0.05).weight_decay(0.01)); }},
      {"SgdMomentum", "sgd { rate: 0.05 momentum: 0.9 }",
       [](P p) { return Sgd(p, SGDOptions(0.05).momentum(0.9)); }},
      {"SgdDampening", "sgd { rate: 0.05 momentum: 0.9 dampening: 0.3 weight_decay: 0.001 }",
       [](P p) {
         return Sgd(p, SGDOptions(0.05).momentum(0.9).dampening(0.3).weight_decay(0.001));
       }},
      {"SgdNesterov", "sgd { rate: 0.05 momentum: 0.9 nesterov: true weight_decay: 0.01 }",
       [](P p) {
         return Sgd(p, SGDOptions(0.05).momentum(0.9).nesterov(true).weight_decay(0.01));
       }},
      {"Adam", "adam { rate: 0.003 }", [](P p) { return Adam(p, AdamOptions(0.003)); }},
      {"AdamWeightDecayAndBetas",
       "adam { rate: 0.003 beta1: 0.8 beta2: 0.95 epsilon: 1e-6 weight_decay: 0.02 }",
       [](P p) {
         return Adam(p, AdamOptions(0.003).betas({0.8, 0.95}).eps(1e-6).weight_decay(0.02));
       }},
      {"AdamAmsgrad", "adam { rate: 0.003 amsgrad: true }",
       [](P p) { return Adam(p, AdamOptions(0.003).amsgrad(true)); }},
      {"AdamW", "adamw { rate: 0.003 }",
       [](P p) { return AdamW(p, AdamWOptions(0.003).weight_decay(0.01)); }},
      {"AdamWAmsgrad", "adamw { rate: 0.003 weight_decay: 0.1 amsgrad: true }",
       [](P p) { return AdamW(p, AdamWOptions(0.003).weight_decay(0.1).amsgrad(true)); }},
      {"Adagrad", "adagrad { rate: 0.05 }", [](P p) { return Adagrad(p, AdagradOptions(0.05)); }},
      {"AdagradDecay",
       "adagrad { rate: 0.05 rate_decay: 0.01 weight_decay: 0.02 initial_accumulator: 0.1 epsilon: "
       "1e-8 }",
       [](P p) {
         return Adagrad(p, AdagradOptions(0.05)
                               .lr_decay(0.01)
                               .weight_decay(0.02)
                               .initial_accumulator_value(0.1)
                               .eps(1e-8));
       }},
      {"RmsProp", "rmsprop { rate: 0.003 }", [](P p) { return RmsProp(p, RMSpropOptions(0.003)); }},
      {"RmsPropCentered", "rmsprop { rate: 0.003 centered: true epsilon: 1e-6 weight_decay: 0.01 }",
       [](P p) {
         return RmsProp(p, RMSpropOptions(0.003).centered(true).eps(1e-6).weight_decay(0.01));
       }},
      {"RmsPropMomentum", "rmsprop { rate: 0.001 momentum: 0.9 }",
       [](P p) { return RmsProp(p, RMSpropOptions(0.001).momentum(0.9)); }},
      {"RmsPropCenteredMomentum", "rmsprop { rate: 0.001 momentum: 0.5 centered: true }",
       [](P p) { return RmsProp(p, RMSpropOptions(0.001).momentum(0.5).centered(true)); }},
  };
}

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class OptimizerParityTest : public ::testing::TestWithParam<Case> {};

TEST_P(OptimizerParityTest, TwoHundredStepsAreTorchs) {
  const JobConfig job = JobFromText("optimizer { " + GetParam().optimizer + " }");
  ShardOptimizer<> shard(job);
  Parameters ours = InitialValues();
  Parameters theirs = InitialValues();
  Gradients gradients;
  const auto optimizer = GetParam().torch(theirs);
  for (int step = 1; step <= kSteps; ++step) {
    gradients.DrawNoise();
    for (size_t i = 0; i < ours.size(); ++i) {
      // "odd" has no gradient in every third step: grad is None.
      if (kShapes[i].first == "odd" && step % 3 == 0) {
        theirs[i].mutable_grad() = Tensor();
        continue;
      }
      theirs[i].mutable_grad() = gradients.At(i, theirs[i]);
      shard.Step(static_cast<uint64_t>(step), kShapes[i].first, ours[i], gradients.At(i, ours[i]));
    }
    optimizer->step();
  }
  for (size_t i = 0; i < ours.size(); ++i) {
    const double difference = Difference(ours[i], theirs[i]);
    std::printf("%s %s: %.2g\n", GetParam().name.c_str(), kShapes[i].first.c_str(), difference);
    EXPECT_LE(difference, IsBitwise(GetParam()) ? 0 : kBar) << kShapes[i].first;
  }
}

// In float64, where roundings do not hide a wrong formula.
TEST_P(OptimizerParityTest, InFloat64TheFormulasAreTorchs) {
  const JobConfig job = JobFromText("optimizer { " + GetParam().optimizer + " }");
  ShardOptimizer<double> shard(job);
  Parameters ours;
  Parameters theirs;
  for (const Tensor& value : InitialValues()) {
    ours.push_back(value.to(torch::kDouble));
    theirs.push_back(ours.back().clone());
  }
  const auto optimizer = GetParam().torch(theirs);
  Gradients gradients;
  for (int step = 1; step <= kSteps; ++step) {
    gradients.DrawNoise();
    for (size_t i = 0; i < ours.size(); ++i) {
      // The shard takes float32 gradients, so both get the same one.
      const Tensor gradient = gradients.At(i, theirs[i]).to(torch::kFloat);
      theirs[i].mutable_grad() = gradient.to(torch::kDouble);
      shard.Step(static_cast<uint64_t>(step), kShapes[i].first, ours[i], gradient);
    }
    optimizer->step();
  }
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_LE(Difference(ours[i], theirs[i]), 1e-12) << kShapes[i].first;
  }
}

INSTANTIATE_TEST_SUITE_P(All, OptimizerParityTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

// The gradient's global norm, as a shard and the step leader compute it.
double Norm(const std::vector<Tensor>& gradients) {
  ClusterView view;
  std::vector<SliceNorms> norms;
  for (size_t i = 0; i < gradients.size(); ++i) {
    view.add_tensors()->set_name(kShapes[i].first);
    Slice& slice = *view.add_slices();
    slice.set_id(static_cast<uint32_t>(i));
    slice.set_tensor(static_cast<uint32_t>(i));
    slice.set_end(static_cast<uint64_t>(gradients[i].numel()));
    SliceNorms& slice_norms = norms.emplace_back();
    slice_norms.set_slice(static_cast<uint32_t>(i));
    constexpr int64_t kBlock = 65'536;
    for (int64_t begin = 0; begin < gradients[i].numel(); begin += kBlock) {
      const int64_t count = std::min(kBlock, gradients[i].numel() - begin);
      slice_norms.add_blocks(
          SumOfSquares({gradients[i].data_ptr<float>() + begin, static_cast<size_t>(count)}));
    }
  }
  return GlobalNorm(view, std::move(norms));
}

TEST(ClippingParityTest, ClippedTrainingIsTorchs) {
  const JobConfig job = JobFromText("optimizer { adam { rate: 0.003 } clip_norm: 5 }");
  ShardOptimizer<> shard(job);
  Parameters ours = InitialValues();
  Parameters theirs = InitialValues();
  Gradients gradients;
  const auto optimizer = Adam(theirs, torch::optim::AdamOptions(0.003));
  int clipped = 0;
  for (int step = 1; step <= kSteps; ++step) {
    gradients.DrawNoise();
    // Large and small gradients in turn, so that some steps are clipped and some are not.
    const double size = step % 2 == 0 ? 1.0 : 0.001;
    std::vector<Tensor> own;
    for (size_t i = 0; i < ours.size(); ++i) {
      theirs[i].mutable_grad() = gradients.At(i, theirs[i]) * size;
      own.push_back(gradients.At(i, ours[i]) * size);
    }
    const double norm = torch::nn::utils::clip_grad_norm_(theirs, 5.0);
    EXPECT_NEAR(Norm(own) / norm, 1, 1e-5);
    const double scale = ClipScale(Norm(own), 5.0);
    clipped += scale < 1;
    for (size_t i = 0; i < ours.size(); ++i) {
      shard.Step(static_cast<uint64_t>(step), kShapes[i].first, ours[i],
                 scale < 1 ? own[i] * static_cast<float>(scale) : own[i]);
    }
    optimizer->step();
  }
  EXPECT_EQ(clipped, kSteps / 2);
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_LE(Difference(ours[i], theirs[i]), kBar) << kShapes[i].first;
  }
}

TEST(OverrideParityTest, FrozenParametersAndOwnSettingsAreParameterGroups) {
  const JobConfig job = JobFromText(
      "optimizer { adamw { rate: 0.003 weight_decay: 0.05 } "
      "overrides { pattern: \"conv.weight\" frozen_until_step: 50 } "
      "overrides { pattern: \"large\" frozen_until_step: 18446744073709551615 } "
      "overrides { pattern: \"*.bias\" weight_decay: 0 rate_factor: 0.1 } }");
  ShardOptimizer<> shard(job);
  Parameters ours = InitialValues();
  Parameters theirs = InitialValues();
  Gradients gradients;
  const Tensor large = theirs[4].clone();
  using torch::optim::AdamWOptions;
  torch::optim::AdamW rest({theirs[2], theirs[3]}, AdamWOptions(0.003).weight_decay(0.05));
  torch::optim::AdamW late({theirs[0]}, AdamWOptions(0.003).weight_decay(0.05));
  torch::optim::AdamW bias({theirs[1]}, AdamWOptions(0.0003).weight_decay(0));
  for (int step = 1; step <= kSteps; ++step) {
    gradients.DrawNoise();
    for (size_t i = 0; i < ours.size(); ++i) {
      theirs[i].mutable_grad() = gradients.At(i, theirs[i]);
      shard.Step(static_cast<uint64_t>(step), kShapes[i].first, ours[i], gradients.At(i, ours[i]));
    }
    rest.step();
    bias.step();
    if (step > 50) late.step();
  }
  EXPECT_TRUE(torch::equal(ours[4], large));
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_LE(Difference(ours[i], theirs[i]), kBar) << kShapes[i].first;
  }
}

// A training under a schedule against torch::optim, where `set_rate(optimizer, step)` sets the rate
// before each step.
using SetRate = std::function<void(torch::optim::Optimizer&, int step)>;
void ExpectScheduleIs(const std::string& schedule, const SetRate& set_rate) {
  const JobConfig job = JobFromText(
      "optimizer { sgd { rate: 0.1 momentum: 0.9 } } learning_rate { " + schedule + " }");
  ShardOptimizer<> shard(job);
  Parameters ours = InitialValues();
  Parameters theirs = InitialValues();
  Gradients gradients;
  const auto optimizer = Sgd(theirs, torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 1; step <= kSteps; ++step) {
    gradients.DrawNoise();
    for (size_t i = 0; i < ours.size(); ++i) {
      theirs[i].mutable_grad() = gradients.At(i, theirs[i]);
      shard.Step(static_cast<uint64_t>(step), kShapes[i].first, ours[i], gradients.At(i, ours[i]));
    }
    set_rate(*optimizer, step);
    optimizer->step();
  }
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_LE(Difference(ours[i], theirs[i]), kBar) << schedule << " " << kShapes[i].first;
  }
}

SetRate To(std::function<double(int step)> rate) {
  return [rate = std::move(rate)](torch::optim::Optimizer& optimizer, int step) {
    for (auto& group : optimizer.param_groups()) group.options().set_lr(rate(step));
  };
}

// The rate that a job's schedule gives, against what PyTorch's scheduler printed at these steps.
void ExpectRates(const std::string& schedule, const std::map<uint64_t, double>& rates) {
  const JobConfig job =
      JobFromText("optimizer { sgd { rate: 0.1 } } learning_rate { " + schedule + " }");
  for (const auto& [step, rate] : rates) {
    EXPECT_NEAR(0.1 * LearningRateFactor(job, {.step = step}) / rate, 1, 1e-12)
        << schedule << " step " << step;
  }
}

TEST(ScheduleParityTest, StepDecayIsStepLR) {
  std::unique_ptr<torch::optim::StepLR> scheduler;
  ExpectScheduleIs("step_decay { every_steps: 30 gamma: 0.7 }",
                   [&](torch::optim::Optimizer& optimizer, int step) {
                     if (step == 1) {
                       scheduler = std::make_unique<torch::optim::StepLR>(optimizer, 30, 0.7);
                     }
                     scheduler->step();  // in C++, before the optimizer's step
                   });
  // torch.optim.lr_scheduler.StepLR(SGD(lr=0.1), 30, 0.7), read before each optimizer.step().
  ExpectRates("step_decay { every_steps: 30 gamma: 0.7 }", {{1, 0.1},
                                                            {30, 0.1},
                                                            {31, 0.06999999999999999},
                                                            {60, 0.06999999999999999},
                                                            {61, 0.048999999999999995},
                                                            {181, 0.011764899999999997},
                                                            {200, 0.011764899999999997}});
}

TEST(ScheduleParityTest, CosineIsCosineAnnealingLR) {
  // C++ has no such scheduler.
  const std::string schedule = "cosine { over_steps: 200 minimum: 0.1 }";
  ExpectScheduleIs(schedule, To([](int step) {
                     return 0.01 + (0.1 - 0.01) * (1 + std::cos(M_PI * (step - 1) / 200)) / 2;
                   }));
  // torch.optim.lr_scheduler.CosineAnnealingLR(SGD(lr=0.1), T_max=200, eta_min=0.01).
  ExpectRates(schedule, {{1, 0.1},
                         {2, 0.09999444846167473},
                         {25, 0.09683994186497132},
                         {50, 0.08731568339934347},
                         {100, 0.05570682927903186},
                         {101, 0.054999999999999924},
                         {150, 0.02368392415334581},
                         {199, 0.010022204783542078},
                         {200, 0.010005551538325273}});
}

TEST(ScheduleParityTest, WarmUpIsLinearLRAndScalingMultipliesByTheWorkers) {
  const std::string schedule = "constant {} warmup_steps: 40 linear_scaling: true";
  ExpectScheduleIs(schedule, To([](int step) { return 2 * 0.1 * std::min(1.0, step / 40.0); }));
  // torch.optim.lr_scheduler.LinearLR(SGD(lr=0.2), start_factor=1/40, total_iters=39); two workers.
  ExpectRates(schedule, {{1, 0.005000000000000001},
                         {2, 0.010000000000000002},
                         {20, 0.10000000000000003},
                         {39, 0.19500000000000003},
                         {40, 0.2},
                         {41, 0.2},
                         {200, 0.2}});
}

}  // namespace
}  // namespace parley
