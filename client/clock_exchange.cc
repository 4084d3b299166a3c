#include "client/clock_exchange.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/gradient_check.h"

namespace parley {

namespace {

PushWindow::Options WindowOptions(const ClockExchange::Options& options) {
  PushWindow::Options window;
  window.contributor = options.contributor;
  window.group_bytes = options.group_bytes;
  window.window_bytes = options.window_bytes;
  return window;
}

}  // namespace

ClockExchange::ClockExchange(const Options& options, const std::vector<TensorSpec>& tensors,
                             const SliceLayout& layout, const TensorArena& gradients,
                             ServiceCalls& calls)
    : options_(options),
      tensors_(tensors),
      layout_(layout),
      gradients_(gradients),
      calls_(calls),
      window_(PushWindow::Make(WindowOptions(options), tensors, layout, gradients, calls)) {}

ClockExchange::~ClockExchange() { window_->Abandon(); }

void ClockExchange::Open(uint64_t clock, uint32_t attempt, double weight, bool has_samples,
                         std::vector<uint64_t> seen) {
  clock_ = clock;
  attempt_ = attempt;
  weight_ = weight;
  seen_ = std::move(seen);
  if (seen_.empty()) seen_.push_back(0);  // PushRequest names it for each slice
  skipped_ = false;
  window_->Begin(clock, attempt, options_.sum ? 1 : weight, seen_);
  absl::MutexLock lock(&mu_);
  open_ = true;
  has_samples_ = has_samples;
  pushed_.assign(tensors_.size(), false);
}

absl::Status ClockExchange::Push(size_t tensor) {
  if (tensor >= tensors_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no tensor ", tensor, ": ", tensors_.size(), " are registered"));
  }
  {
    absl::MutexLock lock(&mu_);
    if (!open_) return absl::FailedPreconditionError("Push: no clock is open, NextStep opens one");
    if (pushed_[tensor]) {
      return absl::FailedPreconditionError(absl::StrCat("Push: '", tensors_[tensor].name(),
                                                        "' was pushed already in clock ", clock_));
    }
    // The gradient of no samples is none, whatever its bytes are.
    if (!has_samples_) return absl::OkStatus();
    pushed_[tensor] = true;
  }
  if (!options_.NeedsWholeGradient()) Send(tensor);
  return absl::OkStatus();
}

void ClockExchange::Send(size_t tensor) {
  {
    absl::MutexLock lock(&mu_);
    for (const PlacedSlice& placed : layout_.pushes(tensor)) pushed_bytes_ += placed.bytes;
  }
  window_->Add(tensor);
}

absl::Status ClockExchange::AwaitPushes(const Wait& wait) {
  std::vector<size_t> marked;
  {
    absl::MutexLock lock(&mu_);
    if (!open_) return absl::FailedPreconditionError("Complete: no clock is open");
    for (size_t tensor = 0; tensor < pushed_.size(); ++tensor) {
      if (pushed_[tensor] && options_.NeedsWholeGradient()) marked.push_back(tensor);
    }
  }
  GradientCheck check;
  for (const size_t tensor : marked) {
    if (!tensors_[tensor].buffer()) {
      check.Add(tensors_[tensor].dtype(), gradients_.tensor(tensor));
    }
  }
  skipped_ = options_.skip_nonfinite && !check.finite();
  if (!marked.empty() && !skipped_) {
    const double scale = options_.clip_norm > 0 ? check.ClipScale(options_.clip_norm) : 1;
    window_->Begin(clock_, attempt_, (options_.sum ? 1 : weight_) * scale, seen_);
    for (const size_t tensor : marked) Send(tensor);
  }
  window_->Flush();
  absl::Status status = wait([this] { return window_->AllAcknowledged(); });
  if (status.ok()) status = window_->error();
  if (!status.ok()) window_->Abandon();  // the caller may write its gradients again
  return status;
}

absl::StatusOr<CompleteReply> ClockExchange::AwaitReply(const Wait& wait, const Share& share,
                                                        uint64_t data_epoch) {
  auto request = std::make_shared<CompleteRequest>();
  request->set_step(clock_);
  request->set_attempt(attempt_);
  request->set_part(layout_.part());
  *request->mutable_share() = share;
  request->set_data_epoch(data_epoch);
  if (skipped_) {
    request->set_fate(CompleteRequest::SKIPPED);
  } else if (const PushWindow::Outcomes outcomes = window_->outcomes(); outcomes.refused != 0) {
    request->set_fate(CompleteRequest::REFUSED);
    request->set_partly_applied(outcomes.taken != 0);
  }
  auto answer = std::make_shared<std::optional<absl::StatusOr<CompleteReply>>>();
  calls_.Complete(
      options_.step_leader, std::move(request),
      [answer](absl::StatusOr<CompleteReply> reply) { answer->emplace(std::move(reply)); });
  const absl::Status waited = wait([&answer] { return answer->has_value(); });
  if (!waited.ok()) return waited;
  if (!(*answer)->ok()) return (*answer)->status();
  if (!(**answer)->has_lease()) {
    return absl::InternalError(absl::StrCat("the step leader (shard ", options_.step_leader,
                                            ") does not say what comes after clock ", clock_));
  }
  absl::MutexLock lock(&mu_);
  open_ = false;
  return *std::move(*answer);
}

uint64_t ClockExchange::TakePushedBytes() {
  absl::MutexLock lock(&mu_);
  return std::exchange(pushed_bytes_, 0);
}

}  // namespace parley
