// The session's verbs of a step: NextStep, Ahead, Push, Complete.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/worker_session.h"
#include "common/job/data_division.h"

namespace parley {

std::optional<StepPlan> WorkerSession::NextStep() {
  if (!data_.has_value()) return std::nullopt;
  if (plan_.has_value()) return plan_;  // open already
  plan_ = data_->Next();
  if (plan_.has_value()) {
    exchange_->Open(plan_->step, plan_->weight);
    membership_->Progress(data_->version());
  }
  return plan_;
}

std::vector<StepPlan> WorkerSession::Ahead(size_t count) const {
  return data_.has_value() ? data_->Ahead(count) : std::vector<StepPlan>();
}

absl::Status WorkerSession::Push(size_t tensor) {
  if (exchange_ == nullptr) return absl::FailedPreconditionError("Push: Register comes first");
  const std::optional<FirstCause> failed = membership_->failure();
  if (failed.has_value()) return absl::AbortedError(failed->text());
  membership_->Progress(0);
  return exchange_->Push(tensor);
}

absl::StatusOr<Verdict> WorkerSession::Complete(double loss_sum) {
  if (!plan_.has_value()) return absl::FailedPreconditionError("Complete: no step is open");
  Share share;
  share.set_contributor(membership_->ordinal());
  share.set_weight(plan_->weight);
  share.set_samples(Count(plan_->ranges));
  share.mutable_ranges()->Assign(plan_->ranges.begin(), plan_->ranges.end());
  share.set_loss_sum(loss_sum);
  while (true) {
    const absl::Time started = absl::Now();
    const absl::Status pushed = exchange_->AwaitPushes([&](const std::function<bool()>& done) {
      return Await(absl::StrCat("pushing the gradients of step ", plan_->step), done);
    });
    const absl::Time acknowledged = absl::Now();
    if (!pushed.ok()) return pushed;
    absl::StatusOr<Verdict> verdict = exchange_->AwaitVerdict(
        [&](const std::function<bool()>& done) {
          return Await(absl::StrCat("waiting for the verdict of step ", plan_->step), done);
        },
        share, plan_->data_epoch);
    {
      absl::MutexLock lock(&traffic_mu_);
      traffic_.pushed_bytes = exchange_->pushed_bytes();
      traffic_.push_seconds += absl::ToDoubleSeconds(acknowledged - started);
      traffic_.wait_seconds += absl::ToDoubleSeconds(absl::Now() - acknowledged);
    }
    if (!verdict.ok()) return verdict.status();
    if (verdict->outcome() == Verdict::RETRY) continue;
    const absl::Status decided = data_->Decide(*verdict);
    if (!decided.ok()) return decided;
    plan_.reset();
    membership_->Progress(data_->version());
    return verdict;
  }
}

}  // namespace parley
