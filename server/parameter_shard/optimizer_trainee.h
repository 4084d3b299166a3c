#ifndef PARLEY_SERVER_PARAMETER_SHARD_OPTIMIZER_TRAINEE_H_
#define PARLEY_SERVER_PARAMETER_SHARD_OPTIMIZER_TRAINEE_H_

// For tests of ApplyUpdate.

#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/parameter_shard/optimizers.h"

namespace parley::testing {

using Kind = OptimizerSettings::Kind;

// A parameter with its optimizer's state.
template <class T>
struct Trainee {
  explicit Trainee(const OptimizerSettings& settings, std::vector<T> start)
      : settings(settings), names(OptimizerStateNames(settings)), values(std::move(start)) {
    for (const std::string& name : names) {
      state[name].assign(values.size(), static_cast<T>(InitialStateValue(settings, name)));
    }
  }

  absl::Status Step(const std::vector<float>& gradient) { return Step(gradient, settings.rate); }
  absl::Status Step(const std::vector<float>& gradient, double rate) {
    return Update(0, values.size(), gradient, rate, ++steps);
  }
  // Of some of the elements, in place; `gradient` is theirs.
  absl::Status Update(size_t begin, size_t length, absl::Span<const float> gradient, double rate,
                      uint64_t step_count) {
    std::vector<StateTensor<T>> tensors;
    for (const std::string& name : names) {
      tensors.push_back({name, absl::MakeSpan(state[name]).subspan(begin, length)});
    }
    return ApplyUpdate<T>(settings, rate, step_count, gradient,
                          absl::MakeSpan(values).subspan(begin, length), tensors);
  }

  OptimizerSettings settings;
  std::vector<std::string> names;
  std::vector<T> values;
  std::map<std::string, std::vector<T>> state;
  uint64_t steps = 0;
};

inline std::vector<float> RandomFloats(std::mt19937_64& random, size_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

template <class T>
std::string BitsOf(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

inline OptimizerSettings SettingsOf(Kind kind) {
  OptimizerSettings settings;
  settings.kind = kind;
  settings.rate = 0.01;
  settings.beta1 = 0.9;
  settings.beta2 = 0.999;
  settings.alpha = 0.99;
  settings.epsilon = 1e-8;
  return settings;
}

}  // namespace parley::testing

#endif  // PARLEY_SERVER_PARAMETER_SHARD_OPTIMIZER_TRAINEE_H_
