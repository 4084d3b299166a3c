#include "server/parameter_shard/optimizers.h"

#include <string>

#include "absl/strings/str_cat.h"
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
bool Fits(const FromTo<T>& values, size_t count) {
  return values.from.size() == count && values.to.size() == count;
}

}  // namespace

template <class T>
absl::Status ApplyUpdate(const OptimizerSettings& settings, double rate, uint64_t step_count,
                         absl::Span<const float> gradient, FromTo<T> parameter,
                         absl::Span<const StateTensor<T>> state) {
  const size_t count = parameter.from.size();
  if (gradient.size() != count || parameter.to.size() != count) {
    return absl::InvalidArgumentError(
        absl::StrCat("gradient of ", gradient.size(), " elements for a parameter of ", count));
  }
  for (const StateTensor<T>& tensor : state) {
    if (!Fits(tensor.values, count)) {
      return absl::InvalidArgumentError(absl::StrCat("optimizer state ", std::string(tensor.name),
                                                     " has ", tensor.values.from.size(),
                                                     " elements, its parameter ", count));
    }
  }
  if (count == 0) return absl::OkStatus();

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
      kernels::Adam<T>(settings, rate, step_count, count, gradient.data(), ArrayOf(parameter), mean,
                       square, largest);
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
                                         absl::Span<const StateTensor<float>>);
template absl::Status ApplyUpdate<double>(const OptimizerSettings&, double, uint64_t,
                                          absl::Span<const float>, FromTo<double>,
                                          absl::Span<const StateTensor<double>>);

double InitialStateValue(const OptimizerSettings& settings, std::string_view name) {
  const bool adagrad_sum = settings.kind == OptimizerSettings::Kind::kAdagrad && name == "sum";
  return adagrad_sum ? settings.initial_accumulator : 0;
}

}  // namespace parley
