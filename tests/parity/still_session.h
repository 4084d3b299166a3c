#ifndef PARLEY_TESTS_PARITY_STILL_SESSION_H_
#define PARLEY_TESTS_PARITY_STILL_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "client/session.h"
#include "client/tensor_arena.h"

namespace parley {

// A Session with nobody behind it, for benchmarks: gradients go nowhere, and parameters stay as
// they are. Each step has the next samples of the set.
class StillSession final : public Session {
 public:
  StillSession(uint64_t samples, uint64_t batch) : samples_(samples), batch_(batch) {}

  uint32_t ordinal() const override { return 0; }
  absl::Status Register(std::vector<TensorSpec> tensors, uint64_t /*training_samples*/,
                        uint64_t /*test_samples*/) override {
    parameters_ = std::make_shared<TensorArena>(tensors);
    gradients_.emplace(tensors);
    return absl::OkStatus();
  }
  bool must_initialize() const override { return true; }
  absl::Status Initialize(absl::Span<const absl::Span<const std::byte>> values) override {
    for (size_t i = 0; i < values.size(); ++i) {
      std::memcpy(parameters_->tensor(i).data(), values[i].data(), values[i].size());
    }
    return absl::OkStatus();
  }
  absl::Span<const std::byte> parameter(size_t tensor) const override {
    return parameters_->tensor(tensor);
  }
  std::shared_ptr<const void> parameter_memory() const override { return parameters_; }
  absl::Span<std::byte> gradient(size_t tensor) override { return gradients_->tensor(tensor); }
  uint64_t version() const override { return step_; }
  uint64_t data_epochs() const override { return 0; }
  absl::Status Pull() override { return absl::OkStatus(); }
  std::optional<StepPlan> NextStep() override { return PlanOf(step_ + 1); }
  std::vector<StepPlan> Ahead(size_t count) const override {
    std::vector<StepPlan> plans;
    for (size_t i = 1; i <= count; ++i) plans.push_back(PlanOf(step_ + i));
    return plans;
  }
  absl::Status Push(size_t /*tensor*/) override { return absl::OkStatus(); }
  absl::StatusOr<Verdict> Complete(double /*loss_sum*/) override {
    Verdict verdict;
    verdict.set_step(++step_);
    verdict.set_outcome(Verdict::APPLY);
    return verdict;
  }
  absl::StatusOr<std::optional<PendingEvaluation>> PullEvaluation() override {
    return std::nullopt;
  }
  absl::StatusOr<bool> ReportEvaluation(const Evaluation& /*part*/) override { return true; }
  absl::StatusOr<bool> Finish(const std::vector<PhaseSeconds>& /*seconds*/) override {
    return true;
  }
  FirstCause Fail(const std::string& reason, bool preempted) override {
    FirstCause cause;
    cause.set_text(reason);
    cause.set_preempted(preempted);
    return cause;
  }
  void Preempt(const std::string& /*reason*/, absl::Duration /*time*/) override {}
  std::optional<FirstCause> failure() const override { return std::nullopt; }
  Traffic traffic() const override { return {}; }
  Epochs epochs() const override { return {.job = 1, .view = 1}; }

 private:
  StepPlan PlanOf(uint64_t step) const {
    StepPlan plan;
    plan.step = step;
    plan.weight = 1;
    for (uint64_t i = 0; i < batch_; ++i) plan.samples.push_back((step * batch_ + i) % samples_);
    return plan;
  }

  const uint64_t samples_;
  const uint64_t batch_;
  std::shared_ptr<TensorArena> parameters_;
  std::optional<TensorArena> gradients_;
  uint64_t step_ = 0;
};

}  // namespace parley

#endif  // PARLEY_TESTS_PARITY_STILL_SESSION_H_
