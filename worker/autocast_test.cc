#include "worker/autocast.h"

#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>

namespace parley {
namespace {

TEST(AutocastTest, ProductsAreOfTheJobsPrecisionWhereItMatters) {
  const at::Tensor x = at::randn({4, 3});
  const at::Tensor w = at::randn({2, 3});
  {
    const AutocastScope scope(BFLOAT16_AUTOCAST, c10::kCPU);
    EXPECT_EQ(at::linear(x, w).scalar_type(), c10::kBFloat16);
    {
      const AutocastScope inner(FLOAT16_AUTOCAST, c10::kCPU);
      EXPECT_EQ(at::linear(x, w).scalar_type(), c10::kHalf);
    }
    EXPECT_EQ(at::linear(x, w).scalar_type(), c10::kBFloat16);
  }
  EXPECT_EQ(at::linear(x, w).scalar_type(), c10::kFloat);
  const AutocastScope none(FLOAT32, c10::kCPU);
  EXPECT_EQ(at::linear(x, w).scalar_type(), c10::kFloat);
}

TEST(AutocastTest, GradientsOfParametersAreFloat32) {
  at::Tensor w = at::randn({2, 3}).set_requires_grad(true);
  at::Tensor loss;
  {
    const AutocastScope scope(FLOAT16_AUTOCAST, c10::kCPU);
    loss = at::linear(at::randn({4, 3}), w).to(c10::kFloat).sum();
  }
  loss.backward();
  EXPECT_EQ(w.grad().scalar_type(), c10::kFloat);
}

TEST(AutocastTest, TheNextScopeRoundsTheParametersThatAreThereThen) {
  at::Tensor w = at::ones({1, 1}).set_requires_grad(true);
  const at::Tensor x = at::ones({1, 1});
  const auto product = [&] {
    const AutocastScope scope(BFLOAT16_AUTOCAST, c10::kCPU);
    return at::linear(x, w).item().toDouble();
  };
  EXPECT_EQ(product(), 1);
  {
    const c10::NoGradGuard no_grad;
    w.fill_(3);
  }
  EXPECT_EQ(product(), 3);
}

}  // namespace
}  // namespace parley
