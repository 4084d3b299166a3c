#ifndef PARLEY_WORKER_HOST_BINDING_H_
#define PARLEY_WORKER_HOST_BINDING_H_

#include <memory>
#include <utility>

#include "client/torch/module_binding.h"
#include "worker/training_binding.h"

namespace parley {

// On the CPU: a ModuleBinding, whose parameters are the session's memory. What lists the network's
// tensors must outlive it.
class HostBinding final : public TrainingBinding {
 public:
  static absl::StatusOr<std::unique_ptr<TrainingBinding>> Make(ModuleBinding::Lister network) {
    auto binding = ModuleBinding::Create(std::move(network));
    if (!binding.ok()) return binding.status();
    return std::make_unique<HostBinding>(*std::move(binding));
  }
  explicit HostBinding(std::unique_ptr<ModuleBinding> binding) : binding_(std::move(binding)) {}

  absl::Status Attach(Session& session, uint64_t training_samples, uint64_t test_samples) override {
    return binding_->Attach(session, training_samples, test_samples);
  }
  void MultiplyGradients(double factor) override { binding_->MultiplyGradients(factor); }
  absl::Status Backward(const at::Tensor& loss, bool last) override {
    return binding_->Backward(loss, last);
  }
  absl::Status Settle() override { return absl::OkStatus(); }
  absl::StatusOr<Verdict> Complete(double loss_sum) override {
    return binding_->Complete(loss_sum);
  }
  absl::Status Pull(bool ahead) override {
    return ahead ? binding_->PullAhead() : binding_->Pull();
  }
  absl::StatusOr<std::optional<Session::PendingEvaluation>> PullEvaluation() override {
    return binding_->PullEvaluation();
  }
  absl::StatusOr<Samples> ToNetwork(const Samples& batch) override { return batch; }

 private:
  const std::unique_ptr<ModuleBinding> binding_;
};

}  // namespace parley

#endif  // PARLEY_WORKER_HOST_BINDING_H_
