#include "common/job/optimizer_settings.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace parley {
namespace {

using Kind = OptimizerSettings::Kind;

TEST(OptimizerSettings, DefaultsAreThoseOfPyTorch) {
  JobConfig job;
  job.mutable_optimizer()->mutable_adam()->set_rate(0.001);
  OptimizerSettings settings = SettingsFor(job, "w");
  EXPECT_EQ(settings.kind, Kind::kAdam);
  EXPECT_EQ(settings.rate, 0.001);
  EXPECT_EQ(settings.beta1, 0.9);
  EXPECT_EQ(settings.beta2, 0.999);
  EXPECT_EQ(settings.epsilon, 1e-8);
  EXPECT_EQ(settings.weight_decay, 0);
  EXPECT_FALSE(settings.amsgrad);

  job.mutable_optimizer()->mutable_adamw();
  settings = SettingsFor(job, "w");
  EXPECT_EQ(settings.kind, Kind::kAdamW);
  EXPECT_EQ(settings.weight_decay, 0.01);

  job.mutable_optimizer()->mutable_adagrad();
  settings = SettingsFor(job, "w");
  EXPECT_EQ(settings.kind, Kind::kAdagrad);
  EXPECT_EQ(settings.epsilon, 1e-10);

  job.mutable_optimizer()->mutable_rmsprop();
  settings = SettingsFor(job, "w");
  EXPECT_EQ(settings.kind, Kind::kRmsProp);
  EXPECT_EQ(settings.alpha, 0.99);
  EXPECT_EQ(settings.epsilon, 1e-8);

  job.mutable_optimizer()->mutable_sgd()->set_nesterov(true);
  settings = SettingsFor(job, "w");
  EXPECT_EQ(settings.kind, Kind::kSgd);
  EXPECT_EQ(settings.momentum, 0);
  EXPECT_TRUE(settings.nesterov);
}

TEST(OptimizerSettings, AZeroThatIsGivenIsNoDefault) {
  JobConfig job;
  Adam& adam = *job.mutable_optimizer()->mutable_adamw();
  adam.set_beta1(0);
  adam.set_beta2(0);
  adam.set_epsilon(0);
  adam.set_weight_decay(0);
  const OptimizerSettings settings = SettingsFor(job, "w");
  EXPECT_EQ(settings.beta1, 0);
  EXPECT_EQ(settings.beta2, 0);
  EXPECT_EQ(settings.epsilon, 0);
  EXPECT_EQ(settings.weight_decay, 0);
}

TEST(OptimizerSettings, TheFirstOverrideThatMatchesCounts) {
  JobConfig job;
  Optimizer& optimizer = *job.mutable_optimizer();
  optimizer.mutable_sgd()->set_rate(0.1);
  optimizer.mutable_sgd()->set_weight_decay(0.5);
  OptimizerOverride& bias = *optimizer.add_overrides();
  bias.set_pattern("*.bias");
  bias.set_weight_decay(0);
  OptimizerOverride& first_layer = *optimizer.add_overrides();
  first_layer.set_pattern("conv1.*");
  first_layer.set_rate_factor(10);
  first_layer.set_frozen_until_step(7);

  const OptimizerSettings conv_bias = SettingsFor(job, "conv1.bias");
  EXPECT_EQ(conv_bias.weight_decay, 0);
  EXPECT_EQ(conv_bias.rate, 0.1);
  EXPECT_EQ(conv_bias.frozen_until_step, 0U);
  const OptimizerSettings conv_weight = SettingsFor(job, "conv1.weight");
  EXPECT_EQ(conv_weight.weight_decay, 0.5);
  EXPECT_EQ(conv_weight.rate, 1.0);
  EXPECT_EQ(conv_weight.frozen_until_step, 7U);
  const OptimizerSettings other = SettingsFor(job, "fc1.weight");
  EXPECT_EQ(other.weight_decay, 0.5);
  EXPECT_EQ(other.rate, 0.1);
}

TEST(OptimizerSettings, PatternsMatchWholeNames) {
  struct Row {
    const char* pattern;
    const char* name;
    bool matches;
  };
  for (const Row& row : std::vector<Row>{
           {"fc1.weight", "fc1.weight", true},
           {"fc1.weight", "fc1.weights", false},
           {"fc1.weight", "afc1.weight", false},
           {"fc1.weight", "fc1xweight", false},
           {"*", "anything", true},
           {"*", "", true},
           {"**", "x", true},
           {"*.bias", "a.b.bias", true},
           {"*.bias", ".bias", true},
           {"*.bias", "bias", false},
           {"*.bias", "a.bias.b", false},
           {"a*b*c", "abc", true},
           {"a*b*c", "aXbYbZc", true},
           {"a*b*c", "acb", false},
           {"a*ab", "aab", true},
           {"a*ab", "ab", false},
           {"*a", "aaaaab", false},
           {"layers.*.weight", "layers.3.weight", true},
           {"layers.*.weight", "layers.3.attention.weight", true},
           {"layers.?.weight", "layers.3.weight", false},
       }) {
    JobConfig job;
    OptimizerOverride& override = *job.mutable_optimizer()->add_overrides();
    override.set_pattern(row.pattern);
    override.set_frozen_until_step(1);
    EXPECT_EQ(SettingsFor(job, row.name).frozen_until_step == 1, row.matches)
        << row.pattern << " and " << row.name;
  }
  JobConfig job;
  OptimizerOverride& override = *job.mutable_optimizer()->add_overrides();
  override.set_frozen_until_step(1);
  std::string pattern;
  for (int i = 0; i < 40; ++i) pattern += "*a";
  override.set_pattern(pattern + "b");
  EXPECT_EQ(SettingsFor(job, std::string(2000, 'a')).frozen_until_step, 0U) << "and soon";
}

TEST(OptimizerSettings, StateHasPyTorchsNames) {
  const auto names = [](Kind kind, double momentum, bool amsgrad, bool centered) {
    OptimizerSettings settings;
    settings.kind = kind;
    settings.momentum = momentum;
    settings.amsgrad = amsgrad;
    settings.centered = centered;
    return OptimizerStateNames(settings);
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(Kind::kSgd, 0, false, false), Names{});
  EXPECT_EQ(names(Kind::kSgd, 0.9, false, false), Names{"momentum_buffer"});
  EXPECT_EQ(names(Kind::kAdam, 0, false, false), (Names{"exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(names(Kind::kAdamW, 0, true, false),
            (Names{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}));
  EXPECT_EQ(names(Kind::kAdagrad, 0, false, false), Names{"sum"});
  EXPECT_EQ(names(Kind::kRmsProp, 0, false, false), Names{"square_avg"});
  EXPECT_EQ(names(Kind::kRmsProp, 0.9, false, true),
            (Names{"square_avg", "momentum_buffer", "grad_avg"}));
}

std::vector<TensorSpec> Model() {
  std::vector<TensorSpec> tensors(3);
  tensors[0].set_name("fc.weight");
  tensors[1].set_name("fc.bias");
  tensors[2].set_name("norm.running_mean");
  tensors[2].set_buffer(true);
  return tensors;
}

TEST(OptimizerSettings, AnOverrideThatCountsForNothingIsRefused) {
  JobConfig job;
  EXPECT_TRUE(CheckOverrides(job, Model()).ok());
  job.mutable_optimizer()->add_overrides()->set_pattern("*.bias");
  job.mutable_optimizer()->add_overrides()->set_pattern("*");
  EXPECT_TRUE(CheckOverrides(job, Model()).ok());
  OptimizerOverride& last = *job.mutable_optimizer()->add_overrides();
  for (const char* const pattern : {"fc.wieght", "fc.weight", "norm.*"}) {
    last.set_pattern(pattern);
    const absl::Status status = CheckOverrides(job, Model());
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << pattern;
    EXPECT_NE(status.message().find(absl::StrCat("overrides[2].pattern: \"", pattern, "\"")),
              std::string::npos)
        << status;
    EXPECT_NE(status.message().find("fc.weight, fc.bias"), std::string::npos) << status;
  }
}

}  // namespace
}  // namespace parley
