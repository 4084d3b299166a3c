#ifndef PARLEY_CLIENT_TORCH_TESTING_FAKE_SESSION_H_
#define PARLEY_CLIENT_TORCH_TESTING_FAKE_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/session.h"
#include "client/tensor_arena.h"

namespace parley {

// A Session of one worker, or of a stage, without a service, for tests: SGD on float32 and float64
// parameters, buffers as pushed, and a record of what was asked of it.
class FakeSession final : public Session {
 public:
  FakeSession(std::vector<StepPlan> plans, double rate) : plans_(std::move(plans)), rate_(rate) {}

  // What the training thread did, in order: "push 0", "complete", "pull", ...
  std::vector<std::string> Calls() const;
  std::vector<std::string> PushedNames() const;  // of the current or last step, in order

  // What was awaited after PullAhead, which brings nothing but buffers and NaN, by name.
  const std::vector<std::string>& awaited() const { return awaited_; }
  // Bytes until which a tensor was awaited, and then pushed, before it was whole; since Register.
  const std::vector<size_t>& awaited_until(size_t tensor) { return awaited_until_[tensor]; }
  std::vector<size_t> pushed_until(size_t tensor) const;
  // By PushNonzero, since Register.
  std::vector<std::string> pushed_nonzero(size_t tensor) const;

  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  const std::vector<Evaluation>& evaluations() const { return evaluations_; }
  const std::vector<PhaseSeconds>& seconds() const { return seconds_; }
  const std::vector<double>& losses() const { return losses_; }
  bool finished() const { return finished_; }

  // Whether AwaitPeers was called with this, or something that ends with it.
  bool HasAwaitedPeers(const std::string& what) const;

  // Test switches.
  bool initialize = true;       // must_initialize
  std::vector<double> initial;  // where it is false: each element of tensor i
  absl::Status push_status;     // what Push answers
  absl::Status pull_status;     // what Pull answers
  SampleRange part;             // of each evaluation; empty: none
  std::set<uint64_t> late;      // steps that the job goes on without: Complete answers STALE
  std::function<void(uint64_t step)> on_complete;
  std::function<void()> on_fail;
  Pipeline in;              // as pipeline
  int untaken_reports = 0;  // so many answers of ReportEvaluation are `false`, the first ones
  // The version to which the job goes back while this worker finishes for the first time.
  std::optional<uint64_t> goes_back_to;
  bool sent_away = false;                    // as drained
  uint64_t joined = 1;                       // as memberships
  uint64_t renew_gradients = 0;              // as gradient_memory
  bool shows = false;                        // parameters
  bool moves = false;                        // they are in another place in the next version
  std::optional<size_t> hidden;              // but not the part that begins there
  DataType on_wire = DATA_TYPE_UNSPECIFIED;  // as gradients_on_wire

  uint32_t ordinal() const override { return 0; }
  bool drained() const override { return sent_away; }
  uint64_t memberships() const override { return joined; }
  Pipeline pipeline() const override { return in; }
  absl::Status Register(std::vector<TensorSpec> tensors, uint64_t training_samples,
                        uint64_t test_samples) override;
  absl::Status RegisterPart(std::vector<TensorSpec> tensors, std::vector<TensorSpec> /*model*/,
                            uint64_t training_samples, uint64_t test_samples) override {
    return Register(std::move(tensors), training_samples, test_samples);
  }
  bool must_initialize() const override { return initialize; }
  absl::Status Initialize(absl::Span<const absl::Span<const std::byte>> values) override;
  absl::Span<const std::byte> parameter(size_t tensor) const override;
  std::vector<ShownPart> ShownParts(size_t tensor, size_t begin, size_t end) const override;
  std::shared_ptr<const void> parameter_memory() const override { return parameters_; }
  absl::Span<std::byte> gradient(size_t tensor) override;
  uint64_t gradient_memory() const override { return renew_gradients; }
  DataType gradients_on_wire() const override { return on_wire; }
  uint64_t version() const override { return losses_.size(); }
  uint64_t data_epochs() const override;
  absl::Status Pull() override;
  absl::Status PullAhead() override;
  absl::Status AwaitParameter(size_t tensor) override;
  absl::Status AwaitParameterUntil(size_t tensor, size_t bytes) override;
  std::optional<StepPlan> NextStep() override;
  absl::Status AwaitPeers(const std::string& what, const std::function<bool()>& done) override;
  void Wake() override;
  std::vector<StepPlan> Ahead(size_t count) const override;
  absl::Status Push(size_t tensor) override;
  // Internal where it is not so.
  absl::Status PushNonzero(size_t tensor, std::string_view nonzero) override;
  absl::Status PushUntil(size_t tensor, size_t bytes) override;
  absl::StatusOr<Verdict> Complete(double loss_sum) override;
  absl::StatusOr<std::optional<PendingEvaluation>> PullEvaluation() override;
  absl::StatusOr<bool> ReportEvaluation(const Evaluation& evaluation) override;
  absl::StatusOr<bool> Finish(const std::vector<PhaseSeconds>& seconds) override;
  FirstCause Fail(const std::string& reason, bool preempted) override;
  void Preempt(const std::string& reason, absl::Duration /*time*/) override {
    (void)Fail(reason, /*preempted=*/true);
  }
  std::optional<FirstCause> failure() const override { return failure_; }
  Traffic traffic() const override { return {}; }
  Epochs epochs() const override { return {.job = job_epoch_, .view = 1}; }

 private:
  void TakeServed();  // whole
  // Internal where what was pushed of it is not what is there now.
  absl::Status CheckBegun(size_t tensor) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  struct Memory {
    explicit Memory(size_t bytes) : bytes_(bytes), words_(bytes / 8 + 1) {}
    absl::Span<std::byte> span() { return {reinterpret_cast<std::byte*>(words_.data()), bytes_}; }
    size_t bytes_;
    std::vector<uint64_t> words_;
  };

  const std::vector<StepPlan> plans_;
  const double rate_;
  size_t next_ = 0;  // index of the plan that NextStep gives
  std::vector<TensorSpec> tensors_;
  mutable std::vector<Memory> served_;  // what Pull brings
  // What the worker sees.
  const std::shared_ptr<std::vector<Memory>> parameters_ = std::make_shared<std::vector<Memory>>();
  // Of `moves`: by size and place.
  mutable std::map<std::pair<size_t, uint64_t>, std::shared_ptr<std::vector<std::byte>>> moved_;
  std::optional<TensorArena> gradients_;
  std::vector<Evaluation> evaluations_;
  std::vector<PhaseSeconds> seconds_;
  std::vector<double> losses_;
  bool finished_ = false;
  uint64_t job_epoch_ = 1;
  std::optional<FirstCause> failure_;
  std::vector<std::string> awaited_;
  std::map<size_t, std::vector<size_t>> awaited_until_;

  absl::Mutex wake_mu_;
  absl::CondVar woken_;

  mutable absl::Mutex mu_;
  std::vector<std::string> calls_ ABSL_GUARDED_BY(mu_);
  std::vector<size_t> pushed_ ABSL_GUARDED_BY(mu_);
  std::map<size_t, std::vector<std::byte>> begun_ ABSL_GUARDED_BY(mu_);  // by PushUntil
  std::map<size_t, std::vector<size_t>> pushed_until_ ABSL_GUARDED_BY(mu_);
  std::map<size_t, std::vector<std::string>> pushed_nonzero_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> awaited_peers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parley

#endif  // PARLEY_CLIENT_TORCH_TESTING_FAKE_SESSION_H_
