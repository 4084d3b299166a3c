#include "server/parameter_shard/optimizers.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "server/parameter_shard/flush_denormals.h"
#include "server/parameter_shard/optimizer_kernels.h"

namespace parley {
namespace {

template <class T>
kernels::Array<T> ArrayOf(const FromTo<T>& values) {
  return {values.from.data(), values.to.data()};
}

template <class T>
kernels::Array<T> Find(absl::Span<const StateTensor<T>> state, std::string_view name) {
  for (const StateTensor<T>& tensor : state) {
    if (tensor.name == name) return ArrayOf(tensor.values);
  }
  return {};
}

template <class T>
bool Fits(const FromTo<T>& values, size_t count, bool may_be_owed) {
  return values.from.size() == count &&
         (values.to.size() == count || (may_be_owed && values.to.empty()));
}

template <class T>
absl::Status DoesNotFit(const StateTensor<T>& tensor, size_t count) {
  return absl::InvalidArgumentError(absl::StrCat("optimizer state ", std::string(tensor.name),
                                                 " has ", tensor.values.from.size(),
                                                 " elements, its parameter ", count));
}

}  // namespace

template <class T>
absl::Status ApplyUpdate(const OptimizerSettings& settings, double rate, uint64_t step_count,
                         absl::Span<const float> gradient, FromTo<T> parameter,
                         absl::Span<const StateTensor<T>> state, uint32_t owed) {
  const size_t count = parameter.from.size();
  if (gradient.size() != count || parameter.to.size() != count) {
    return absl::InvalidArgumentError(
        absl::StrCat("gradient of ", gradient.size(), " elements for a parameter of ", count));
  }
  const bool can_owe = CanOwe(settings);
  if (owed > (can_owe ? kMostOwed : 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("state that is owed ", owed, " steps of this optimizer"));
  }
  for (const StateTensor<T>& tensor : state) {
    if (!Fits(tensor.values, count, can_owe)) return DoesNotFit(tensor, count);
  }
  if (count == 0) return absl::OkStatus();
  const FlushDenormals flush;

  std::string missing;
  const auto need = [&](std::string_view name) {
    const kernels::Array<T> values = Find(state, name);
    if (values.from == nullptr) missing = std::string(name);
    return values;
  };
  const auto missing_state = [&] {
    return absl::InvalidArgumentError(absl::StrCat("optimizer state ", missing, " is missing"));
  };

  using Kind = OptimizerSettings::Kind;
  switch (settings.kind) {
    case Kind::kSgd: {
      const auto buffer = settings.momentum != 0 ? need("momentum_buffer") : kernels::Array<T>();
      if (!missing.empty()) return missing_state();
      kernels::Sgd<T>(settings, rate, step_count, count, gradient.data(), ArrayOf(parameter),
                      buffer);
      return absl::OkStatus();
    }
    case Kind::kAdam:
    case Kind::kAdamW: {
      const auto mean = need("exp_avg");
      const auto square = need("exp_avg_sq");
      const auto largest = settings.amsgrad ? need("max_exp_avg_sq") : kernels::Array<T>();
      if (!missing.empty()) return missing_state();
      if ((mean.to == nullptr) != (square.to == nullptr)) {
        return absl::InvalidArgumentError("of one step's state either all is owed or nothing");
      }
      kernels::Adam<T>(settings, rate, step_count, owed, count, gradient.data(), ArrayOf(parameter),
                       mean, square, largest);
      return absl::OkStatus();
    }
    case Kind::kAdagrad: {
      const auto sum = need("sum");
      if (!missing.empty()) return missing_state();
      kernels::Adagrad<T>(settings, rate, step_count, count, gradient.data(), ArrayOf(parameter),
                          sum);
      return absl::OkStatus();
    }
    case Kind::kRmsProp: {
      const auto square = need("square_avg");
      const auto mean = settings.centered ? need("grad_avg") : kernels::Array<T>();
      const auto buffer = settings.momentum > 0 ? need("momentum_buffer") : kernels::Array<T>();
      if (!missing.empty()) return missing_state();
      kernels::RmsProp<T>(settings, rate, count, gradient.data(), ArrayOf(parameter), square, mean,
                          buffer);
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError("unknown optimizer");
}

template absl::Status ApplyUpdate<float>(const OptimizerSettings&, double, uint64_t,
                                         absl::Span<const float>, FromTo<float>,
                                         absl::Span<const StateTensor<float>>, uint32_t);
template absl::Status ApplyUpdate<double>(const OptimizerSettings&, double, uint64_t,
                                          absl::Span<const float>, FromTo<double>,
                                          absl::Span<const StateTensor<double>>, uint32_t);

bool CanOwe(const OptimizerSettings& settings) {
  switch (settings.kind) {
    case OptimizerSettings::Kind::kAdam:
      return !settings.amsgrad && settings.weight_decay == 0;
    case OptimizerSettings::Kind::kAdamW:
      return !settings.amsgrad;
    default:
      return false;
  }
}

template <class T>
absl::Status ApplyOwed(const OptimizerSettings& settings, uint32_t owed,
                       absl::Span<const StateTensor<T>> state) {
  const kernels::Array<T> mean = Find(state, "exp_avg");
  const kernels::Array<T> square = Find(state, "exp_avg_sq");
  if (!CanOwe(settings) || owed > kMostOwed || mean.from == nullptr || square.from == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(owed, " steps are owed, or of other state than Adam's two tensors"));
  }
  const size_t count = state[0].values.from.size();
  for (const StateTensor<T>& tensor : state) {
    if (!Fits(tensor.values, count, false)) return DoesNotFit(tensor, count);
  }
  const FlushDenormals flush;
  kernels::AdamOwed<T>(settings, owed, count, mean, square);
  return absl::OkStatus();
}

template absl::Status ApplyOwed<float>(const OptimizerSettings&, uint32_t,
                                       absl::Span<const StateTensor<float>>);
template absl::Status ApplyOwed<double>(const OptimizerSettings&, uint32_t,
                                        absl::Span<const StateTensor<double>>);

double InitialStateValue(const OptimizerSettings& settings, std::string_view name) {
  const bool adagrad_sum = settings.kind == OptimizerSettings::Kind::kAdagrad && name == "sum";
  return adagrad_sum ? settings.initial_accumulator : 0;
}

}  // namespace parley
