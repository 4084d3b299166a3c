#include "common/job/optimizer_settings.h"

#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace parley {
namespace {

// Whether `text` is what `pattern` describes, where '*' stands for any text. Remembers the last '*'
// and lets it swallow one character more whenever the rest does not fit: never exponential.
bool Matches(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0;
  size_t star = std::string_view::npos, swallowed_to = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      swallowed_to = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++swallowed_to;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

OptimizerSettings AdamSettings(const Adam& adam, bool decoupled) {
  OptimizerSettings settings;
  settings.kind = decoupled ? OptimizerSettings::Kind::kAdamW : OptimizerSettings::Kind::kAdam;
  settings.rate = adam.rate();
  settings.beta1 = adam.has_beta1() ? adam.beta1() : 0.9;
  settings.beta2 = adam.has_beta2() ? adam.beta2() : 0.999;
  settings.epsilon = adam.has_epsilon() ? adam.epsilon() : 1e-8;
  settings.weight_decay = adam.has_weight_decay() ? adam.weight_decay() : decoupled ? 0.01 : 0;
  settings.amsgrad = adam.amsgrad();
  return settings;
}

OptimizerSettings JobSettings(const Optimizer& optimizer) {
  OptimizerSettings settings;
  switch (optimizer.kind_case()) {
    case Optimizer::kAdam:
      return AdamSettings(optimizer.adam(), false);
    case Optimizer::kAdamw:
      return AdamSettings(optimizer.adamw(), true);
    case Optimizer::kAdagrad: {
      const Adagrad& adagrad = optimizer.adagrad();
      settings.kind = OptimizerSettings::Kind::kAdagrad;
      settings.rate = adagrad.rate();
      settings.rate_decay = adagrad.rate_decay();
      settings.weight_decay = adagrad.weight_decay();
      settings.initial_accumulator = adagrad.initial_accumulator();
      settings.epsilon = adagrad.has_epsilon() ? adagrad.epsilon() : 1e-10;
      return settings;
    }
    case Optimizer::kRmsprop: {
      const RmsProp& rmsprop = optimizer.rmsprop();
      settings.kind = OptimizerSettings::Kind::kRmsProp;
      settings.rate = rmsprop.rate();
      settings.alpha = rmsprop.has_alpha() ? rmsprop.alpha() : 0.99;
      settings.epsilon = rmsprop.has_epsilon() ? rmsprop.epsilon() : 1e-8;
      settings.weight_decay = rmsprop.weight_decay();
      settings.momentum = rmsprop.momentum();
      settings.centered = rmsprop.centered();
      return settings;
    }
    case Optimizer::kSgd:
    case Optimizer::KIND_NOT_SET:
      break;
  }
  const Sgd& sgd = optimizer.sgd();
  settings.kind = OptimizerSettings::Kind::kSgd;
  settings.rate = sgd.rate();
  settings.momentum = sgd.momentum();
  settings.dampening = sgd.dampening();
  settings.weight_decay = sgd.weight_decay();
  settings.nesterov = sgd.nesterov();
  return settings;
}

}  // namespace

OptimizerSettings SettingsFor(const JobConfig& job, const std::string& parameter) {
  OptimizerSettings settings = JobSettings(job.optimizer());
  for (const OptimizerOverride& override : job.optimizer().overrides()) {
    if (!Matches(override.pattern(), parameter)) continue;
    if (override.has_rate_factor()) settings.rate *= override.rate_factor();
    if (override.has_weight_decay()) settings.weight_decay = override.weight_decay();
    settings.frozen_until_step = override.frozen_until_step();
    settings.frozen_epochs = override.frozen_epochs();
    break;
  }
  return settings;
}

absl::Status CheckOverrides(const JobConfig& job, const std::vector<TensorSpec>& tensors) {
  const auto& overrides = job.optimizer().overrides();
  std::vector<bool> counts(static_cast<size_t>(overrides.size()));
  std::vector<std::string> first_names;
  for (const TensorSpec& tensor : tensors) {
    if (tensor.buffer()) continue;
    if (first_names.size() < 5) first_names.push_back(tensor.name());
    for (int i = 0; i < overrides.size(); ++i) {
      if (!Matches(overrides[i].pattern(), tensor.name())) continue;
      counts[static_cast<size_t>(i)] = true;
      break;
    }
  }
  for (int i = 0; i < overrides.size(); ++i) {
    if (counts[static_cast<size_t>(i)]) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "optimizer.overrides[", i, "].pattern: \"", overrides[i].pattern(),
        "\" matches no parameter of the model that no override before it matches; parameters are ",
        absl::StrJoin(first_names, ", "), ", ..."));
  }
  return absl::OkStatus();
}

std::vector<std::string> OptimizerStateNames(const OptimizerSettings& settings) {
  std::vector<std::string> names;
  switch (settings.kind) {
    case OptimizerSettings::Kind::kSgd:
      if (settings.momentum != 0) names = {"momentum_buffer"};
      break;
    case OptimizerSettings::Kind::kAdam:
    case OptimizerSettings::Kind::kAdamW:
      names = {"exp_avg", "exp_avg_sq"};
      if (settings.amsgrad) names.push_back("max_exp_avg_sq");
      break;
    case OptimizerSettings::Kind::kAdagrad:
      names = {"sum"};
      break;
    case OptimizerSettings::Kind::kRmsProp:
      names = {"square_avg"};
      if (settings.momentum > 0) names.push_back("momentum_buffer");
      if (settings.centered) names.push_back("grad_avg");
      break;
  }
  return names;
}

}  // namespace parley
