// What the shard's optimizers cost one thread: ApplyUpdate over float32 against a loop that loads
// and stores the same arrays and does next to nothing with them, in turns.
//
//   bazel run -c opt //tests/benchmarks:optimizer_benchmark -- [--mib=64] [--rounds=20]
#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/job/optimizer_settings.h"
#include "server/parameter_shard/optimizers.h"
#include "tests/benchmarks/timing.h"

namespace parley {
namespace {

// Adds the gradient to each of the other arrays: as many loads and stores as the optimizer with so
// many arrays has.
template <size_t kArrays>
__attribute__((optimize("O3"))) void LoadAndStore(size_t count, const float* __restrict gradient,
                                                  float* __restrict a, float* __restrict b,
                                                  float* __restrict c) {
  for (size_t i = 0; i < count; ++i) {
    a[i] += gradient[i];
    if constexpr (kArrays > 1) b[i] += gradient[i];
    if constexpr (kArrays > 2) c[i] += gradient[i];
  }
}

struct Case {
  const char* name;
  OptimizerSettings settings;
};

std::vector<Case> Cases() {
  OptimizerSettings sgd;
  sgd.rate = 1e-3;
  OptimizerSettings momentum = sgd;
  momentum.momentum = 0.9;
  OptimizerSettings nesterov = momentum;
  nesterov.nesterov = true;
  nesterov.weight_decay = 1e-4;
  OptimizerSettings adam = sgd;
  adam.kind = OptimizerSettings::Kind::kAdam;
  adam.beta1 = 0.9;
  adam.beta2 = 0.999;
  adam.epsilon = 1e-8;
  OptimizerSettings adamw = adam;
  adamw.kind = OptimizerSettings::Kind::kAdamW;
  adamw.weight_decay = 1e-2;
  OptimizerSettings adagrad = adam;
  adagrad.kind = OptimizerSettings::Kind::kAdagrad;
  OptimizerSettings rmsprop = adam;
  rmsprop.kind = OptimizerSettings::Kind::kRmsProp;
  rmsprop.alpha = 0.99;
  return {{"SGD", sgd},
          {"SGD, momentum", momentum},
          {"SGD, Nesterov, decay", nesterov},
          {"Adam", adam},
          {"AdamW", adamw},
          {"Adagrad", adagrad},
          {"RMSprop", rmsprop}};
}

void Measure(const Case& of, size_t count, size_t rounds) {
  const std::vector<std::string> names = OptimizerStateNames(of.settings);
  const size_t arrays = 1 + names.size();
  const std::vector<float> gradient(count, 1e-3F);
  std::vector<std::vector<float>> values(3, std::vector<float>(count, 1));
  std::vector<StateTensor<float>> state;
  for (size_t i = 0; i < names.size(); ++i) {
    state.push_back({names[i], absl::MakeSpan(values[i + 1])});
  }
  std::vector<double> update;
  std::vector<double> loop;
  for (size_t round = 0; round < rounds; ++round) {
    update.push_back(SecondsOf([&] {
      const absl::Status status = ApplyUpdate<float>(of.settings, of.settings.rate, round + 1,
                                                     gradient, absl::MakeSpan(values[0]), state);
      if (!status.ok()) std::exit((std::fprintf(stderr, "%s\n", status.ToString().c_str()), 1));
    }));
    const auto load_and_store = arrays == 1   ? LoadAndStore<1>
                                : arrays == 2 ? LoadAndStore<2>
                                              : LoadAndStore<3>;
    loop.push_back(SecondsOf([&] {
      load_and_store(count, gradient.data(), values[0].data(), values[1].data(), values[2].data());
    }));
  }
  // The gradient is loaded, the others are loaded and stored.
  const double bytes = static_cast<double>(count * sizeof(float) * (1 + 2 * arrays));
  std::printf("%-22s %10.2f %10.2f %10.1f %12.2f\n", of.name, 1e3 * Median(update),
              1e3 * Median(loop), 1e-9 * bytes / Median(update), Median(loop) / Median(update));
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  CLI::App app("What the shard's optimizers cost one thread.", "optimizer_benchmark");
  size_t mib = 64;
  size_t rounds = 20;
  app.add_option("--mib", mib, "Of parameters");
  app.add_option("--rounds", rounds, "Of each; medians are told");
  CLI11_PARSE(app, argc, argv);
  std::printf("%-22s %10s %10s %10s %12s\n", "", "update ms", "loop ms", "GB/s", "of the loop");
  for (const Case& of : Cases()) Measure(of, (mib << 20) / sizeof(float), rounds);
  return 0;
}

}  // namespace
}  // namespace parley

int main(int argc, char** argv) { return parley::Main(argc, argv); }
