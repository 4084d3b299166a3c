// What the shard's optimizers cost one thread: ApplyUpdate over float32 against a loop that loads
// and stores the same arrays and does next to nothing with them, in turns. Then the same step
// computed beside what there is (sync.update_ahead), in slices of 1 MiB: with a lent gradient, and
// as of zeros, in turns, of which all state is written, or left undone for a while where it can be.
//
//   bazel run -c opt //tests/benchmarks:optimizer_benchmark -- [--mib=64] [--rounds=20]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/job/optimizer_settings.h"
#include "common/tensor_slice.h"
#include "proto/types.pb.h"
#include "server/parameter_shard/accumulator.h"
#include "server/parameter_shard/ahead_update.h"
#include "server/parameter_shard/buffer.h"
#include "server/parameter_shard/optimizers.h"
#include "server/parameter_shard/slice_training.h"
#include "tests/benchmarks/require.h"
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

// Slices whose next step is computed beside the last one.
class Beside {
 public:
  static constexpr uint64_t kElements = 1 << 18;

  Beside(const OptimizerSettings& settings, absl::Span<const float> gradient) {
    TensorSpec tensor;
    tensor.set_dtype(F32);
    training_ = std::make_shared<SliceTraining>("slice", tensor, kElements, settings);
    for (uint64_t begin = 0; begin + kElements <= gradient.size(); begin += kElements) {
      Slice& slice = slices_.emplace_back();
      slice.gradient = std::make_unique<GradientAccumulator>(kElements, /*apart=*/false, &pool_);
      TensorSlice lent;
      lent.dtype = F32;
      lent.bytes = TensorBytes::Piece(reinterpret_cast<const std::byte*>(gradient.data() + begin),
                                      kElements * sizeof(float));
      lent.owner = training_;  // somebody who stays
      lent.loan = Loan();
      Require(slice.gradient->Add({.begin = 0, .end = kElements}, lent));
      for (AheadUpdate::After* const place : {&slice.now, &slice.next}) {
        place->values = pool_.Take(kElements * sizeof(float));
        std::fill_n(place->values->as<float>().data(), kElements, 1.0F);
        if (training_->state_bytes() == 0) continue;
        place->state = pool_.Take(training_->state_bytes());
        std::fill_n(place->state->as<float>().data(), place->state->size() / sizeof(float), 1.0F);
      }
    }
  }

  bool CanOwe() const { return training_->CanOwe(); }
  // owes: state may be left undone; then at every step.
  void Step(bool of_zeros, bool owes = false) {
    ++step_;
    for (Slice& slice : slices_) {
      const uint32_t contributors[] = {0};
      SliceUpdate update;
      update.step = step_;
      update.contributors = contributors;
      AheadUpdate::Before before;
      before.training = training_;
      if (!of_zeros) before.gradient = slice.gradient->Share();
      before.values = Pin(slice.now.values);
      if (slice.now.state != nullptr) before.state = Pin(slice.now.state);
      before.step_count = step_;
      before.owed = slice.owed;
      AheadUpdate::After after = slice.next;
      if (owes) {
        after.owed = std::make_shared<OwedBlocks>(kElements);
        after.former_state = slice.now.state;
      }
      AheadUpdate ahead(update, std::move(before), after);
      ahead.Run();
      Require(ahead.Await());
      std::swap(slice.now, slice.next);
      slice.owed = after.owed;
    }
  }

 private:
  struct Slice {
    std::unique_ptr<GradientAccumulator> gradient;
    AheadUpdate::After now;
    AheadUpdate::After next;
    std::shared_ptr<const OwedBlocks> owed;
  };
  BufferPool pool_;
  std::shared_ptr<const SliceTraining> training_;
  std::vector<Slice> slices_;
  uint64_t step_ = 0;
};

void Measure(const Case& of, size_t count, size_t rounds) {
  const std::vector<std::string> names = OptimizerStateNames(of.settings);
  const size_t arrays = 1 + names.size();
  const std::vector<float> gradient(count, 1e-3F);
  std::vector<std::vector<float>> values(3, std::vector<float>(count, 1));
  std::vector<StateTensor<float>> state;
  for (size_t i = 0; i < names.size(); ++i) {
    state.push_back({names[i], absl::MakeSpan(values[i + 1])});
  }
  Beside beside(of.settings, gradient);
  std::vector<double> update;
  std::vector<double> loop;
  std::vector<double> ahead;
  std::vector<double> of_zeros;
  Beside owing(of.settings, gradient);
  std::vector<double> owed;
  for (size_t round = 0; round < rounds; ++round) {
    update.push_back(SecondsOf([&] {
      Require(ApplyUpdate<float>(of.settings, of.settings.rate, round + 1, gradient,
                                 absl::MakeSpan(values[0]), state));
    }));
    const auto load_and_store = arrays == 1   ? LoadAndStore<1>
                                : arrays == 2 ? LoadAndStore<2>
                                              : LoadAndStore<3>;
    loop.push_back(SecondsOf([&] {
      load_and_store(count, gradient.data(), values[0].data(), values[1].data(), values[2].data());
    }));
  }
  for (size_t round = 0; round < rounds; ++round) {
    ahead.push_back(SecondsOf([&] { beside.Step(/*of_zeros=*/false); }));
    of_zeros.push_back(SecondsOf([&] { beside.Step(/*of_zeros=*/true); }));
    owed.push_back(SecondsOf([&] { owing.Step(/*of_zeros=*/true, owing.CanOwe()); }));
  }
  // The gradient is loaded, the others are loaded and stored.
  const double bytes = static_cast<double>(count * sizeof(float) * (1 + 2 * arrays));
  std::printf("%-22s %10.2f %10.2f %10.1f %12.2f %10.2f %12.2f %10.2f\n", of.name,
              1e3 * Median(update), 1e3 * Median(loop), 1e-9 * bytes / Median(update),
              Median(loop) / Median(update), 1e3 * Median(ahead), 1e3 * Median(of_zeros),
              1e3 * Median(owed));
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  CLI::App app("What the shard's optimizers cost one thread.", "optimizer_benchmark");
  size_t mib = 64;
  size_t rounds = 20;
  app.add_option("--mib", mib, "Of parameters");
  app.add_option("--rounds", rounds, "Of each; medians are told");
  CLI11_PARSE(app, argc, argv);
  std::printf("%-22s %10s %10s %10s %12s %10s %12s %10s\n", "", "update ms", "loop ms", "GB/s",
              "of the loop", "beside ms", "of zeros ms", "owed ms");
  for (const Case& of : Cases()) Measure(of, (mib << 20) / sizeof(float), rounds);
  return 0;
}

}  // namespace
}  // namespace parley

int main(int argc, char** argv) { return parley::Main(argc, argv); }
