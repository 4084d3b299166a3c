#ifndef PARLEY_CLIENT_WORKER_SESSION_H_
#define PARLEY_CLIENT_WORKER_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/answer_queue.h"
#include "client/data_plan.h"
#include "client/membership.h"
#include "client/parameter_puller.h"
#include "client/service_calls.h"
#include "client/session.h"
#include "client/slice_layout.h"
#include "client/step_exchange.h"
#include "client/tensor_arena.h"
#include "client/timer_thread.h"

namespace parley {

// The Session of a worker. It owns the membership, the buffers and the calls; one thread uses it,
// but for Push, failure and traffic. What other threads learn (answers, states of the job, its
// failure) comes through the AnswerQueue, so that everything without a lock here belongs to the
// training thread.
class WorkerSession final : public Session {
 public:
  WorkerSession(Session::Options options, Connector& connector);
  ~WorkerSession() override;

  // First of all, once.
  absl::Status JoinJob();

  uint32_t ordinal() const override { return membership_->ordinal(); }
  absl::Status Register(std::vector<TensorSpec> tensors, uint64_t training_samples,
                        uint64_t test_samples) override;
  bool must_initialize() const override;
  absl::Status Initialize(absl::Span<const absl::Span<const std::byte>> values) override;
  absl::Span<const std::byte> parameter(size_t tensor) const override {
    return parameters_->tensor(tensor);
  }
  absl::Span<std::byte> gradient(size_t tensor) override { return gradients_->tensor(tensor); }
  absl::Status Pull() override;
  std::optional<StepPlan> NextStep() override;
  std::vector<StepPlan> Ahead(size_t count) const override;
  absl::Status Push(size_t tensor) override;
  absl::StatusOr<Verdict> Complete(double loss_sum) override;
  SampleRange evaluation_part() const override;
  absl::Status ReportEvaluation(const Evaluation& part) override;
  absl::Status Finish(const std::vector<PhaseSeconds>& seconds) override;
  FirstCause Fail(const std::string& reason, bool preempted) override;
  std::optional<FirstCause> failure() const override { return membership_->failure(); }
  Traffic traffic() const override;
  Epochs epochs() const override;

 private:
  // Runs answers until done() holds. While it waits the process counts as making progress: what it
  // waits for is to be blamed, not the one that waits. Errors: the job's failure, or that `what`
  // did not come.
  absl::Status Await(const std::string& what, const std::function<bool()>& done);
  absl::Status AdoptView();
  std::string WhatIsMissing();
  const ClusterView& view() const { return watched_->view(); }

  // Constant after construction or JoinJob.
  const Session::Options options_;
  Connector& connector_;
  const absl::Duration liveness_;
  const absl::Duration patience_;
  const std::shared_ptr<AnswerQueue> queue_ = std::make_shared<AnswerQueue>();
  const std::shared_ptr<TimerThread> timers_ = std::make_shared<TimerThread>();
  // The newest state of the job; shared with the listener's answers.
  const std::shared_ptr<WatchReply> watched_ = std::make_shared<WatchReply>();
  std::unique_ptr<Membership> membership_;
  std::unique_ptr<ServiceCalls> calls_;

  // Constant after Register.
  std::vector<TensorSpec> tensors_;
  std::optional<TensorArena> parameters_;
  std::optional<TensorArena> gradients_;
  std::optional<SliceLayout> layout_;
  std::optional<ParameterPuller> puller_;
  std::unique_ptr<StepExchange> exchange_;

  // The training thread's.
  std::optional<DataPlan> data_;
  std::optional<StepPlan> plan_;  // of the open step
  bool left_ = false;

  mutable absl::Mutex traffic_mu_;
  Traffic traffic_ ABSL_GUARDED_BY(traffic_mu_);
};

}  // namespace parley

#endif  // PARLEY_CLIENT_WORKER_SESSION_H_
