#include "common/job/optimizer_check.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"

namespace parley {
namespace {

void AdamIsRight(const Adam& adam, const std::string& path, FieldCheck& check) {
  check.Positive(adam.rate(), path + ".rate");
  check.BelowOne(adam.beta1(), path + ".beta1");
  check.BelowOne(adam.beta2(), path + ".beta2");
  check.NotNegative(adam.epsilon(), path + ".epsilon");
  check.NotNegative(adam.weight_decay(), path + ".weight_decay");
}

void KindIsRight(const Optimizer& optimizer, FieldCheck& check) {
  switch (optimizer.kind_case()) {
    case Optimizer::kSgd: {
      const Sgd& sgd = optimizer.sgd();
      check.Positive(sgd.rate(), "optimizer.sgd.rate");
      check.NotNegative(sgd.momentum(), "optimizer.sgd.momentum");
      check.Require(std::isfinite(sgd.dampening()), "optimizer.sgd.dampening",
                    "must be a finite number");
      check.NotNegative(sgd.weight_decay(), "optimizer.sgd.weight_decay");
      check.Require(!sgd.nesterov() || (sgd.momentum() > 0 && sgd.dampening() == 0),
                    "optimizer.sgd.nesterov", "needs a momentum above 0 and no dampening");
      break;
    }
    case Optimizer::kAdam:
      AdamIsRight(optimizer.adam(), "optimizer.adam", check);
      break;
    case Optimizer::kAdamw:
      AdamIsRight(optimizer.adamw(), "optimizer.adamw", check);
      break;
    case Optimizer::kAdagrad: {
      const Adagrad& adagrad = optimizer.adagrad();
      check.Positive(adagrad.rate(), "optimizer.adagrad.rate");
      check.NotNegative(adagrad.rate_decay(), "optimizer.adagrad.rate_decay");
      check.NotNegative(adagrad.weight_decay(), "optimizer.adagrad.weight_decay");
      check.NotNegative(adagrad.initial_accumulator(), "optimizer.adagrad.initial_accumulator");
      check.NotNegative(adagrad.epsilon(), "optimizer.adagrad.epsilon");
      break;
    }
    case Optimizer::kRmsprop: {
      const RmsProp& rmsprop = optimizer.rmsprop();
      check.Positive(rmsprop.rate(), "optimizer.rmsprop.rate");
      check.BelowOne(rmsprop.alpha(), "optimizer.rmsprop.alpha");
      check.NotNegative(rmsprop.epsilon(), "optimizer.rmsprop.epsilon");
      check.NotNegative(rmsprop.weight_decay(), "optimizer.rmsprop.weight_decay");
      check.NotNegative(rmsprop.momentum(), "optimizer.rmsprop.momentum");
      break;
    }
    case Optimizer::KIND_NOT_SET:
      check.Require(false, "optimizer",
                    "is missing; give one of sgd, adam, adamw, adagrad and rmsprop, such as "
                    "optimizer { adam { rate: 0.001 } }");
  }
}

template <class Points>
bool Rise(const Points& points) {
  return std::adjacent_find(points.begin(), points.end(), std::greater_equal<>()) == points.end();
}

void CheckMilestones(const Milestones& milestones, FieldCheck& check) {
  check.Require(milestones.steps().empty() != milestones.epochs().empty(),
                "learning_rate.milestones", "needs either steps or epochs");
  check.Require(Rise(milestones.steps()), "learning_rate.milestones.steps", "must rise");
  for (const double epochs : milestones.epochs()) {
    check.NotNegative(epochs, "learning_rate.milestones.epochs");
  }
  check.Require(Rise(milestones.epochs()), "learning_rate.milestones.epochs", "must rise");
  check.Positive(milestones.gamma(), "learning_rate.milestones.gamma");
}

}  // namespace

void CheckOptimizer(FieldCheck& check) {
  const Optimizer& optimizer = check.job().optimizer();
  KindIsRight(optimizer, check);
  check.NotNegative(optimizer.clip_norm(), "optimizer.clip_norm");
  for (int i = 0; i < optimizer.overrides_size(); ++i) {
    const OptimizerOverride& override = optimizer.overrides(i);
    const std::string path = absl::StrCat("optimizer.overrides[", i, "]");
    check.Require(
        !override.pattern().empty(), path + ".pattern",
        "must be a parameter's name, in which '*' stands for any text, such as \"*.bias\"");
    check.NotNegative(override.rate_factor(), path + ".rate_factor");
    check.NotNegative(override.weight_decay(), path + ".weight_decay");
    check.NotNegative(override.frozen_epochs(), path + ".frozen_epochs");
  }
}

void CheckLearningRate(FieldCheck& check) {
  const LearningRate& rate = check.job().learning_rate();
  check.NotNegative(rate.warmup_epochs(), "learning_rate.warmup_epochs");
  check.Require(rate.warmup_steps() == 0 || rate.warmup_epochs() == 0,
                "learning_rate.warmup_epochs", "and warmup_steps cannot both be given");
  if (rate.has_step_decay()) {
    const StepDecay& decay = rate.step_decay();
    check.NotNegative(decay.every_epochs(), "learning_rate.step_decay.every_epochs");
    check.Require(decay.every_steps() > 0 || decay.every_epochs() > 0,
                  "learning_rate.step_decay.every_steps",
                  "must be at least 1, or every_epochs above 0");
    check.Require(decay.every_steps() == 0 || decay.every_epochs() == 0,
                  "learning_rate.step_decay.every_epochs", "and every_steps cannot both be given");
    check.Positive(decay.gamma(), "learning_rate.step_decay.gamma");
  }
  if (rate.has_milestones()) CheckMilestones(rate.milestones(), check);
  if (rate.has_cosine()) {
    const double minimum = rate.cosine().minimum();
    check.Require(minimum >= 0 && minimum <= 1, "learning_rate.cosine.minimum",
                  "is a factor on the rate and must be at least 0 and at most 1");
  }
}

}  // namespace parley
