#ifndef PARLEY_SERVER_PIPELINE_STAGE_HOST_STAGE_BINDING_H_
#define PARLEY_SERVER_PIPELINE_STAGE_HOST_STAGE_BINDING_H_

#include <memory>
#include <utility>
#include <vector>

#include "server/pipeline_stage/stage_binding.h"

namespace parley {

// On the CPU: a ModuleBinding, whose parameters are the session's memory.
class HostStageBinding final : public StageBinding {
 public:
  // The parts' tensors must outlive it.
  static absl::StatusOr<std::unique_ptr<StageBinding>> Make(std::vector<NamedTensor> tensors) {
    auto binding = ModuleBinding::Create(
        ModuleBinding::Lister([tensors = std::move(tensors)] { return tensors; }));
    if (!binding.ok()) return binding.status();
    return std::make_unique<HostStageBinding>(*std::move(binding));
  }
  explicit HostStageBinding(std::unique_ptr<ModuleBinding> binding)
      : binding_(std::move(binding)) {}

  ModuleBinding& module() override { return *binding_; }
  absl::Status AttachPart(Session& session, const std::vector<TensorSpec>& model,
                          uint64_t training_samples, uint64_t test_samples) override {
    return binding_->AttachPart(session, model, training_samples, test_samples);
  }
  absl::Status GatherGradients(absl::FunctionRef<void()> backward) override {
    return binding_->GatherGradients(backward);
  }
  void AddGradient(const at::Tensor& parameter, const at::Tensor& gradient) override {
    binding_->AddGradient(parameter, gradient);
  }
  absl::Status PushGathered(absl::Span<const size_t> tensors) override {
    return binding_->PushGathered(tensors);
  }
  void DropGradients() override { binding_->DropGradients(); }
  absl::StatusOr<Verdict> Complete(double loss_sum) override {
    return binding_->Complete(loss_sum);
  }
  absl::Status PullAhead() override { return binding_->PullAhead(); }
  absl::Status PullVersion(uint64_t version) override { return binding_->PullVersion(version); }
  absl::Status Settle() override { return absl::OkStatus(); }
  absl::StatusOr<LayerFlow> FromHost(LayerFlow flow) override { return flow; }
  absl::StatusOr<LayerFlow> ToHost(LayerFlow flow) override { return flow; }

 private:
  const std::unique_ptr<ModuleBinding> binding_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_PIPELINE_STAGE_HOST_STAGE_BINDING_H_
