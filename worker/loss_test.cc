#include "worker/loss.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace parley {
namespace {

TEST(LossTest, ShapesThatWouldBroadcastAreRefused) {
  EXPECT_THROW(ComputeLoss(MEAN_SQUARED_ERROR, at::ones({4, 1}), at::ones({4})), c10::Error);
  EXPECT_THROW(ComputeLoss(CROSS_ENTROPY, at::ones({4, 2}), at::zeros({3}, at::kLong)), c10::Error);
}

TEST(LossTest, OfTargetsThatAreAllLeftOutTheLossIsZeroAndSoAreItsGradients) {
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{}, {5}, {2, 3}}) {
    std::vector<int64_t> of_outputs = {2, 4};
    of_outputs.insert(of_outputs.end(), shape.begin(), shape.end());
    std::vector<int64_t> of_y = {2};
    of_y.insert(of_y.end(), shape.begin(), shape.end());
    const at::Tensor outputs = at::ones(of_outputs);
    outputs.set_requires_grad(true);
    const at::Tensor loss = ComputeLoss(CROSS_ENTROPY, outputs, at::full(of_y, -100, at::kLong));
    EXPECT_EQ(loss.item().toDouble(), 0);
    loss.mul(0.5).backward();
    EXPECT_TRUE(at::equal(outputs.grad(), at::zeros(of_outputs))) << outputs.grad();
  }
}

TEST(LossTest, TargetsThatAreLeftOutCountNowhere) {
  const at::Tensor outputs = at::tensor({1.F, 2.F, 3.F, 9.F, 8.F, 7.F}).reshape({2, 3});
  const double loss = ComputeLoss(CROSS_ENTROPY, outputs, at::tensor({2, -100})).item().toDouble();
  EXPECT_EQ(loss,
            ComputeLoss(CROSS_ENTROPY, outputs.slice(0, 0, 1), at::tensor({2})).item().toDouble());
}

TEST(LossTest, HowTheOutputsOfSeveralTargetsLieInMemoryChangesNothing) {
  const at::Tensor y = at::tensor({0, 2, -100, 1, 4, 3, 2, 2}).reshape({2, 4});
  const at::Tensor values = at::arange(40, at::kFloat).reshape({2, 4, 5}).mul(0.37).sin();
  const at::Tensor side_by_side = values.detach().clone().set_requires_grad(true);
  const at::Tensor apart =
      values.transpose(1, 2).contiguous().detach().clone().set_requires_grad(true);
  const at::Tensor loss = ComputeLoss(CROSS_ENTROPY, side_by_side.transpose(1, 2), y);
  const at::Tensor same = ComputeLoss(CROSS_ENTROPY, apart, y);
  EXPECT_NEAR(loss.item().toDouble(), same.item().toDouble(), 1e-6);
  loss.backward();
  same.backward();
  EXPECT_TRUE(at::allclose(side_by_side.grad().transpose(1, 2), apart.grad(), 1e-5, 1e-7));
  EXPECT_GT(apart.grad().abs().max().item().toDouble(), 0.01);
}

TEST(LossTest, TargetsThatDoNotBelongToTheOutputsAreRefusedHoweverTheyLie) {
  EXPECT_THROW(
      ComputeLoss(CROSS_ENTROPY, at::ones({2, 4, 5}).transpose(1, 2), at::zeros({2, 5}, at::kLong)),
      c10::Error);
}

TEST(LossTest, CountsTopOneAndTopFive) {
  Evaluation evaluation;
  const at::Tensor outputs = at::tensor({9.0F, 8.0F, 7.0F, 6.0F, 5.0F, 4.0F, 3.0F}).repeat({3, 1});
  AddToEvaluation(CROSS_ENTROPY, outputs, at::tensor({0, 4, 5}), evaluation);
  EXPECT_EQ(evaluation.samples(), 3);
  EXPECT_EQ(evaluation.correct(), 1);
  EXPECT_EQ(evaluation.correct_top5(), 2);
}

TEST(LossTest, AnEvaluationIsOverTheTargetsThatAreNotLeftOut) {
  const at::Tensor outputs = at::tensor({9.F, 1.F, 2.F, 3.F, 1.F, 2.F}).reshape({2, 3});
  Evaluation evaluation, counted;
  AddToEvaluation(CROSS_ENTROPY, outputs, at::tensor({0, -100}), evaluation);
  AddToEvaluation(CROSS_ENTROPY, outputs, at::tensor({-100, -100}), evaluation);
  AddToEvaluation(CROSS_ENTROPY, outputs, at::tensor({-100, 2}), evaluation);
  AddToEvaluation(CROSS_ENTROPY, outputs, at::tensor({0, 2}), counted);
  EXPECT_EQ(evaluation.samples(), 6) << "as many as there are in the set";
  EXPECT_EQ(evaluation.left_out(), 4);
  EXPECT_EQ(counted.left_out(), 0);
  EXPECT_NEAR(evaluation.loss_sum(), counted.loss_sum(), 1e-6);
  EXPECT_EQ(evaluation.correct(), counted.correct());
  EXPECT_EQ(evaluation.correct_top5(), 2);
}

TEST(LossTest, AClassThatLooksLikeTheMarkInASmallTypeIsAClass) {
  Evaluation evaluation;
  AddToEvaluation(CROSS_ENTROPY, at::ones({2, 200}), at::tensor({156, 3}, at::kByte), evaluation);
  EXPECT_EQ(evaluation.left_out(), 0);
}

TEST(LossTest, WithSeveralTargetsToASampleTheShareThatIsLeftOutIsOfASample) {
  const at::Tensor outputs = at::ones({2, 3, 4});
  const at::Tensor y = at::zeros({2, 4}, at::kLong);
  y.select(0, 0).slice(0, 1).fill_(-100);
  Evaluation evaluation;
  AddToEvaluation(CROSS_ENTROPY, outputs, y, evaluation);
  EXPECT_EQ(evaluation.samples(), 2);
  EXPECT_EQ(evaluation.left_out(), 0.75);
  EXPECT_NEAR(evaluation.loss_sum() / (2 - evaluation.left_out()), std::log(3), 1e-6);
}

}  // namespace
}  // namespace parley
