#include "server/parameter_shard/optimizers.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "server/parameter_shard/optimizer_kernels.h"

namespace parley {
namespace {

template <class T>
T* Find(absl::Span<const StateTensor<T>> state, std::string_view name) {
  for (const StateTensor<T>& tensor : state) {
    if (tensor.name == name) return tensor.values.data();
  }
  return nullptr;
}

}  // namespace

template <class T>
absl::Status ApplyUpdate(const OptimizerSettings& settings, double rate, uint64_t step_count,
                         absl::Span<const float> gradient, absl::Span<T> parameter,
                         absl::Span<const StateTensor<T>> state) {
  const size_t count = parameter.size();
  if (gradient.size() != count) {
    return absl::InvalidArgumentError(
        absl::StrCat("gradient of ", gradient.size(), " elements for a parameter of ", count));
  }
  for (const StateTensor<T>& tensor : state) {
    if (tensor.values.size() != count) {
      return absl::InvalidArgumentError(absl::StrCat("optimizer state ", std::string(tensor.name),
                                                     " has ", tensor.values.size(),
                                                     " elements, its parameter ", count));
    }
  }
  if (count == 0) return absl::OkStatus();

  std::string missing;
  const auto need = [&](std::string_view name) {
    T* values = Find(state, name);
    if (values == nullptr) missing = std::string(name);
    return values;
  };
  const auto missing_state = [&] {
    return absl::InvalidArgumentError(absl::StrCat("optimizer state ", missing, " is missing"));
  };

  using Kind = OptimizerSettings::Kind;
  switch (settings.kind) {
    case Kind::kSgd: {
      T* buffer = settings.momentum != 0 ? need("momentum_buffer") : nullptr;
      if (!missing.empty()) return missing_state();
      kernels::Sgd<T>(settings, rate, step_count, count, gradient.data(), parameter.data(), buffer);
      return absl::OkStatus();
    }
    case Kind::kAdam:
    case Kind::kAdamW: {
      T* mean = need("exp_avg");
      T* square = need("exp_avg_sq");
      T* largest = settings.amsgrad ? need("max_exp_avg_sq") : nullptr;
      if (!missing.empty()) return missing_state();
      kernels::Adam<T>(settings, rate, step_count, count, gradient.data(), parameter.data(), mean,
                       square, largest);
      return absl::OkStatus();
    }
    case Kind::kAdagrad: {
      T* sum = need("sum");
      if (!missing.empty()) return missing_state();
      kernels::Adagrad<T>(settings, rate, step_count, count, gradient.data(), parameter.data(),
                          sum);
      return absl::OkStatus();
    }
    case Kind::kRmsProp: {
      T* square = need("square_avg");
      T* mean = settings.centered ? need("grad_avg") : nullptr;
      T* buffer = settings.momentum > 0 ? need("momentum_buffer") : nullptr;
      if (!missing.empty()) return missing_state();
      kernels::RmsProp<T>(settings, rate, count, gradient.data(), parameter.data(), square, mean,
                          buffer);
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError("unknown optimizer");
}

template absl::Status ApplyUpdate<float>(const OptimizerSettings&, double, uint64_t,
                                         absl::Span<const float>, absl::Span<float>,
                                         absl::Span<const StateTensor<float>>);
template absl::Status ApplyUpdate<double>(const OptimizerSettings&, double, uint64_t,
                                          absl::Span<const float>, absl::Span<double>,
                                          absl::Span<const StateTensor<double>>);

double InitialStateValue(const OptimizerSettings& settings, std::string_view name) {
  const bool adagrad_sum = settings.kind == OptimizerSettings::Kind::kAdagrad && name == "sum";
  return adagrad_sum ? settings.initial_accumulator : 0;
}

}  // namespace parley
