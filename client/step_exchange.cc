#include "client/step_exchange.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace parley {

namespace {

PushWindow::Options WindowOptions(const StepExchange::Options& options) {
  PushWindow::Options window;
  window.contributor = options.contributor;
  window.sum = options.sum;
  window.group_bytes = options.group_bytes;
  window.window_bytes = options.window_bytes;
  return window;
}

}  // namespace

StepExchange::StepExchange(const Options& options, const std::vector<TensorSpec>& tensors,
                           const SliceLayout& layout, const TensorArena& gradients,
                           ServiceCalls& calls)
    : options_(options),
      tensors_(tensors),
      layout_(layout),
      calls_(calls),
      window_(PushWindow::Make(WindowOptions(options), tensors, layout, gradients, calls)) {}

StepExchange::~StepExchange() { window_->Abandon(); }

void StepExchange::Open(uint64_t step, uint32_t attempt, double weight) {
  window_->Begin(step, attempt, weight);
  absl::MutexLock lock(&mu_);
  step_ = step;
  attempt_ = attempt;
  weight_ = weight;
  pushed_.assign(tensors_.size(), false);
}

absl::Status StepExchange::Push(size_t tensor) {
  if (tensor >= tensors_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no tensor ", tensor, ": ", tensors_.size(), " are registered"));
  }
  {
    absl::MutexLock lock(&mu_);
    if (step_ == 0) {
      return absl::FailedPreconditionError("Push: no step is open, NextStep opens one");
    }
    if (pushed_[tensor]) {
      return absl::FailedPreconditionError(
          absl::StrCat("Push: '", tensors_[tensor].name(), "' was pushed already in step ", step_));
    }
    // The gradient of no samples is none, whatever its bytes are.
    if (weight_ == 0 && !options_.sum) return absl::OkStatus();
    pushed_[tensor] = true;
    for (const PlacedSlice& placed : layout_.pushes(tensor)) pushed_bytes_ += placed.bytes;
  }
  window_->Add(tensor);
  return absl::OkStatus();
}

absl::Status StepExchange::AwaitPushes(const Wait& wait) {
  {
    absl::MutexLock lock(&mu_);
    if (step_ == 0) return absl::FailedPreconditionError("Complete: no step is open");
  }
  window_->Flush();
  absl::Status status = wait([this] { return window_->AllAcknowledged(); });
  if (status.ok()) status = window_->error();
  if (!status.ok()) window_->Abandon();  // the caller may write its gradients again
  return status;
}

absl::StatusOr<Verdict> StepExchange::AwaitVerdict(const Wait& wait, const Share& share,
                                                   uint64_t data_epoch) {
  auto request = std::make_shared<CompleteRequest>();
  {
    absl::MutexLock lock(&mu_);
    request->set_step(step_);
    request->set_attempt(attempt_);
    for (size_t tensor = 0; tensor < pushed_.size(); ++tensor) {
      if (pushed_[tensor]) continue;
      for (const PlacedSlice& placed : layout_.pushes(tensor)) request->add_none(placed.slice);
    }
  }
  request->set_part(layout_.part());
  *request->mutable_share() = share;
  request->set_data_epoch(data_epoch);
  const uint64_t step = request->step();
  const uint32_t attempt = request->attempt();
  auto answer = std::make_shared<std::optional<absl::StatusOr<CompleteReply>>>();
  calls_.Complete(
      options_.step_leader, std::move(request),
      [answer](absl::StatusOr<CompleteReply> reply) { answer->emplace(std::move(reply)); });
  const absl::Status waited = wait([&answer] { return answer->has_value(); });
  if (!waited.ok()) return waited;
  if (!(*answer)->ok()) return (*answer)->status();
  Verdict verdict = std::move(*(**answer)->mutable_verdict());
  if (verdict.step() != step ||
      (verdict.outcome() == Verdict::RETRY && verdict.attempt() < attempt)) {
    return absl::InternalError(absl::StrCat(
        "the step leader (shard ", options_.step_leader, ") answered step ", step, ", attempt ",
        attempt, " with a verdict of step ", verdict.step(), ", attempt ", verdict.attempt()));
  }
  if (verdict.outcome() == Verdict::RETRY) {
    {
      absl::MutexLock lock(&mu_);
      attempt_ = verdict.attempt() + 1;
    }
    PushAgain();
  } else {
    absl::MutexLock lock(&mu_);
    step_ = 0;
  }
  return verdict;
}

void StepExchange::PushAgain() {
  std::vector<size_t> held;
  {
    absl::MutexLock lock(&mu_);
    window_->Begin(step_, attempt_, weight_);
    for (size_t tensor = 0; tensor < pushed_.size(); ++tensor) {
      if (pushed_[tensor]) held.push_back(tensor);
      pushed_[tensor] = false;
    }
  }
  for (size_t tensor : held) (void)Push(tensor);  // as before, so it is accepted
}

uint64_t StepExchange::TakePushedBytes() {
  absl::MutexLock lock(&mu_);
  return std::exchange(pushed_bytes_, 0);
}

}  // namespace parley
