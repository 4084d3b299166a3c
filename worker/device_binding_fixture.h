#ifndef PARLEY_WORKER_DEVICE_BINDING_FIXTURE_H_
#define PARLEY_WORKER_DEVICE_BINDING_FIXTURE_H_

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "client/torch/testing/fake_session.h"
#include "worker/device_binding.h"
#include "worker/models/network.h"

namespace parley::testing {

// Two layers with a batch normalisation between them, one parameter that nothing uses, one frozen,
// and one that only some microbatches use.
class TestNetwork final : public Network {
 public:
  TestNetwork() {
    torch::manual_seed(5);
    module_ = std::make_shared<torch::nn::Module>();
    first_ = module_->register_module("first", torch::nn::Linear(3, 4));
    norm_ = module_->register_module("norm", torch::nn::BatchNorm1d(4));
    second_ = module_->register_module("second", torch::nn::Linear(4, 1));
    unused_ = module_->register_parameter("unused", torch::ones({2}));
    frozen_ = module_->register_parameter("frozen", torch::full({1}, 3.0), false);
    rare_ = module_->register_parameter("rare", torch::ones({1}));
  }
  at::Tensor Forward(const at::Tensor& x) override {
    at::Tensor h = second_(torch::relu(norm_(first_(x)))) + frozen_;
    return x.size(0) > 2 ? h * rare_ : h;
  }
  void SetTraining(bool training) override { module_->train(training); }
  std::vector<NamedTensor> Tensors() const override { return TensorsOf(*module_); }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  torch::nn::Linear first_{nullptr}, second_{nullptr};
  torch::nn::BatchNorm1d norm_{nullptr};
  at::Tensor unused_, frozen_, rare_;
};

// What a binding is made of. The network outlives it.
inline ModuleBinding::Lister ListerOf(const Network& network) {
  return [&network] { return network.Tensors(); };
}

inline std::vector<StepPlan> Plans(size_t count) {
  std::vector<StepPlan> plans(count);
  for (size_t i = 0; i < count; ++i) {
    plans[i].step = i + 1;
    plans[i].samples = {0, 1, 2, 3};
    plans[i].weight = 1;
  }
  return plans;
}

// Of all microbatches of a step.
using Microbatches = std::vector<at::Tensor>;

inline void Train(TrainingBinding& binding, Network& network, FakeSession& session,
                  const Microbatches& microbatches, double loss_scale = 1) {
  ASSERT_TRUE(binding.Attach(session, 4, 0).ok());
  binding.MultiplyGradients(1 / loss_scale);
  while (const auto plan = session.NextStep()) {
    for (size_t i = 0; i < microbatches.size(); ++i) {
      // The second one stands for the classes.
      const auto there = binding.ToNetwork({microbatches[i], torch::arange(4)});
      ASSERT_TRUE(there.ok()) << there.status();
      ASSERT_TRUE(at::equal(there->y, torch::arange(4)));
      const at::Tensor loss =
          network.Forward(there->x).square().mean() / microbatches.size() * loss_scale;
      const absl::Status status = binding.Backward(loss, i + 1 == microbatches.size());
      ASSERT_TRUE(status.ok()) << status;
    }
    ASSERT_TRUE(binding.Complete(1).ok());
    // Ahead forward waits for what it uses; at the end the network is looked at.
    ASSERT_TRUE(binding.Pull(/*ahead=*/plan->step % 2 == 1).ok());
  }
}

inline std::vector<std::byte> AllParameters(const FakeSession& session) {
  std::vector<std::byte> all;
  for (size_t i = 0; i < session.tensors().size(); ++i) {
    const auto values = session.parameter(i);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace parley::testing

#endif  // PARLEY_WORKER_DEVICE_BINDING_FIXTURE_H_
