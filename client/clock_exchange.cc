#include "client/clock_exchange.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/gradient_check.h"

namespace parley {

ClockExchange::ClockExchange(const Options& options, const std::vector<TensorSpec>& tensors,
                             const SliceLayout& layout, TensorArena& gradients, ServiceCalls& calls)
    : options_(options),
      tensors_(tensors),
      layout_(layout),
      gradients_(gradients),
      calls_(calls),
      window_(PushWindow::Make(options.window, tensors, layout, gradients, calls)),
      pushed_(tensors, layout) {}

ClockExchange::~ClockExchange() { window_->Abandon(); }

void ClockExchange::Open(uint64_t clock, uint32_t attempt, double weight, bool has_samples,
                         std::vector<uint64_t> seen) {
  clock_ = clock;
  attempt_ = attempt;
  weight_ = weight;
  seen_ = std::move(seen);
  if (seen_.empty()) seen_.push_back(0);  // PushRequest names it for each slice
  skipped_ = false;
  // Shards have copied what counts; what they have not, as it came late, must not be what is made
  // now.
  if (gradients_.lends()) gradients_.Recall();
  Begin(1);
  pushed_.Open(clock, has_samples);
}

void ClockExchange::Begin(double scale) {
  window_->Begin(clock_, attempt_, (options_.sum ? 1 : weight_) * scale, seen_);
}

absl::Status ClockExchange::Push(size_t tensor) {
  const absl::StatusOr<bool> to_send = pushed_.Mark(tensor);
  if (!to_send.ok()) return to_send.status();
  if (*to_send && !options_.NeedsWholeGradient()) window_->Add(tensor);
  return absl::OkStatus();
}

absl::Status ClockExchange::AwaitPushes(const AnswerQueue::Wait& wait) {
  if (!pushed_.open()) return absl::FailedPreconditionError("Complete: no clock is open");
  if (options_.NeedsWholeGradient()) {
    const std::vector<size_t> marked = pushed_.marked();
    GradientCheck check;
    for (const size_t tensor : marked) {
      if (!tensors_[tensor].buffer()) {
        check.Add(tensors_[tensor].dtype(), gradients_.tensor(tensor));
      }
    }
    skipped_ = options_.skip_nonfinite && !check.finite();
    if (!skipped_) {
      Begin(options_.clip_norm > 0 ? check.ClipScale(options_.clip_norm) : 1);
      for (const size_t tensor : marked) window_->Add(tensor);
    }
  }
  return window_->AwaitAcknowledged(wait);
}

absl::StatusOr<CompleteReply> ClockExchange::AwaitReply(const AnswerQueue::Wait& wait,
                                                        const Share& share, uint64_t data_epoch) {
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
  absl::StatusOr<CompleteReply> reply =
      calls_.AwaitComplete(options_.step_leader, std::move(request), wait);
  if (!reply.ok()) return reply.status();
  if (!reply->has_lease()) {
    return absl::InternalError(absl::StrCat("the step leader (shard ", options_.step_leader,
                                            ") does not say what comes after clock ", clock_));
  }
  pushed_.Close();
  return reply;
}

}  // namespace parley
