// Bar 5, through whole shards: 200 steps of two workers over two shards, with weights, a clipped
// norm, a tensor without gradient, a frozen one and a schedule, against torch::optim. What the
// other test asks of the optimizers alone this one asks of the step: sum, division, clip, apply.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/job/learning_rate.h"
#include "server/parameter_shard/shard_fixture.h"
#include "tests/parity/job_text.h"

namespace parley {
namespace {

using testing::CodeOf;
using testing::OutcomeOf;
using testing::ShardCluster;
using testing::VerdictOf;
using torch::Tensor;
using Parameters = std::vector<Tensor>;

constexpr uint64_t kSteps = 200;
constexpr double kBar = 1e-6;
constexpr double kClipNorm = 2;
constexpr std::array<double, 2> kWeights = {1, 3};

// The third has two slices, one on each shard.
const std::vector<testing::TestTensor> kTensors = {
    {"first.weight", 500}, {"first.bias", 7}, {"large", 70'001}, {"frozen", 20}};
constexpr size_t kWithoutGradient = 1;  // in every third step
constexpr size_t kFrozen = 3;

struct Case {
  std::string name;
  std::string optimizer;  // of the job file
  std::function<std::unique_ptr<torch::optim::Optimizer>(Parameters)> torch;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::vector<Case> Cases() {
  using namespace torch::optim;
  return {
      {"SgdNesterov", "sgd { rate: 0.05 momentum: 0.9 nesterov: true weight_decay: 0.01 }",
       [](Parameters p) {
         return std::make_unique<SGD>(
             p, SGDOptions(0.05).momentum(0.9).nesterov(true).weight_decay(0.01));
       }},
      {"AdamW", "adamw { rate: 0.003 weight_decay: 0.05 }",
       [](Parameters p) {
         return std::make_unique<AdamW>(p, AdamWOptions(0.003).weight_decay(0.05));
       }},
      {"RmsProp", "rmsprop { rate: 0.003 }",
       [](Parameters p) { return std::make_unique<RMSprop>(p, RMSpropOptions(0.003)); }},
  };
}

class ShardParityTest : public ::testing::TestWithParam<Case> {
 protected:
  ShardParityTest()
      : job_(JobFromText("name: \"test\" optimizer { " + GetParam().optimizer +
                         " clip_norm: 2 overrides { pattern: \"frozen\" frozen_until_step: 1000 } }"
                         " learning_rate { step_decay { every_steps: 60 gamma: 0.5 } }")),
        view_(testing::MakeView({.tensors = kTensors, .shards = 2, .workers = 2})),
        cluster_(job_, view_) {
    at::set_num_threads(1);
    torch::manual_seed(7);
  }

  // What a worker hands over: its gradient times its weight.
  void Push(uint32_t worker, uint64_t step, const std::vector<Tensor>& gradients) {
    CompleteRequest complete = cluster_.MakeComplete(worker, step, 0, kWeights[worker]);
    for (const Slice& slice : view_.slices()) {
      const Tensor& gradient = gradients[slice.tensor()];
      if (!gradient.defined()) {
        complete.add_none(slice.id());
        continue;
      }
      const float* const begin = gradient.data_ptr<float>() + slice.begin();
      const std::vector<float> values(begin, begin + (slice.end() - slice.begin()));
      ASSERT_EQ(OutcomeOf(cluster_.Push(cluster_.MakePush(worker, step, 0, slice.id(), values))),
                ADDED);
    }
    complete_ = cluster_.Complete(complete);
  }

  Tensor Values(size_t tensor, uint64_t version) {
    const std::vector<float> values = cluster_.Values(kTensors[tensor].name, version);
    return torch::tensor(values);
  }

  const JobConfig job_;
  const ClusterView view_;
  ShardCluster cluster_;
  ShardCluster::CompleteResult complete_;  // the last one
};

TEST_P(ShardParityTest, TwoHundredStepsOfTwoShardsAreTorchs) {
  Parameters theirs;
  Parameters targets;
  for (const testing::TestTensor& tensor : kTensors) {
    theirs.push_back(torch::zeros(static_cast<int64_t>(tensor.elements)));
    targets.push_back(torch::randn(static_cast<int64_t>(tensor.elements)) + 1);
  }
  // A frozen one has no gradient with torch (requires_grad), and so no part in the norm either.
  const Parameters trained(theirs.begin(), theirs.begin() + kFrozen);
  const auto optimizer = GetParam().torch(trained);
  const double rate = optimizer->param_groups()[0].options().get_lr();
  int clipped = 0;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    // Large and small gradients by turns, so that some steps are clipped and some are not.
    const float size = step % 2 == 0 ? 1.0F : 0.001F;
    std::vector<std::vector<Tensor>> pushed(2);
    for (size_t i = 0; i < kTensors.size(); ++i) {
      const Tensor ours = Values(i, step - 1);
      const bool none = i == kWithoutGradient && step % 3 == 0;
      Tensor sum;
      for (size_t worker = 0; worker < 2; ++worker) {
        const Tensor noise = torch::randn_like(ours) * 0.02;
        const auto at = [&](const Tensor& parameter) {
          return ((parameter - targets[i]) * 0.2 + noise) * size *
                 static_cast<float>(kWeights[worker]);
        };
        pushed[worker].push_back(none ? Tensor() : at(ours));
        sum = sum.defined() ? sum + at(theirs[i]) : at(theirs[i]);
      }
      theirs[i].mutable_grad() = none ? Tensor() : sum / 4;
    }
    clipped += torch::nn::utils::clip_grad_norm_(trained, kClipNorm) > kClipNorm;
    for (auto& group : optimizer->param_groups()) {
      group.options().set_lr(rate * LearningRateFactor(job_, {.step = step}));
    }
    optimizer->step();

    for (uint32_t worker : {0, 1}) Push(worker, step, pushed[worker]);
    cluster_.Deliver();
    ASSERT_EQ(CodeOf(complete_), absl::StatusCode::kOk) << "step " << step;
    ASSERT_EQ(VerdictOf(complete_).outcome(), Verdict::APPLY) << "step " << step;
  }
  EXPECT_EQ(clipped, kSteps / 2);
  for (size_t i = 0; i < kTensors.size(); ++i) {
    const Tensor ours = Values(i, kSteps);
    if (i == kFrozen) {
      EXPECT_TRUE(torch::equal(ours, torch::zeros_like(ours)));
      continue;
    }
    const double difference =
        ((ours - theirs[i]).abs().max() / theirs[i].abs().max()).item<double>();
    std::printf("%s %s: %.2g\n", GetParam().name.c_str(), kTensors[i].name.c_str(), difference);
    EXPECT_LE(difference, kBar) << kTensors[i].name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ShardParityTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace parley
