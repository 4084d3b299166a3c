#include "client/step_exchange.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/nonzero_blocks.h"
#include "common/tensor.h"

namespace parley {
namespace {

// Of pushes that travel with Complete: less than what makes a message of its own worth while.
constexpr size_t kMostCarriedBytes = 64 << 10;

}  // namespace

StepExchange::StepExchange(const Options& options, const std::vector<TensorSpec>& tensors,
                           const SliceLayout& layout, TensorArena& gradients, ServiceCalls& calls)
    : options_(options),
      tensors_(tensors),
      layout_(layout),
      gradients_(gradients),
      calls_(calls),
      window_(PushWindow::Make(options.window, tensors, layout, gradients, calls)),
      pushed_(tensors, layout),
      sent_(tensors, layout) {}

StepExchange::~StepExchange() {
  if (options_.reducer != nullptr) options_.reducer->Abort();
  window_->Abandon();
}

void StepExchange::Open(uint64_t step, uint32_t attempt, double weight, bool is_read) {
  step_ = step;
  attempt_ = attempt;
  weight_ = weight;
  if (gradients_.lends() && !is_read) gradients_.Recall();
  Begin();
  pushed_.Open(step, weight != 0 || options_.sum);
  sent_.Open(step, /*counts=*/true);
  if (options_.reducer != nullptr) options_.reducer->Open(step, options_.sum ? 1 : weight_);
}

void StepExchange::Begin() {
  rest_.clear();
  pulled_.reset();
  // The reducer has weighed what it has added up.
  scale_ = options_.sum || options_.reducer != nullptr ? 1 : weight_;
  window_->Begin(step_, attempt_, scale_);
}

absl::Status StepExchange::PushNonzero(size_t tensor, std::string_view nonzero) {
  if (!nonzero.empty() && tensor < tensors_.size() &&
      (tensors_[tensor].buffer() ||
       !NonzeroElements(nonzero, ElementCount(tensors_[tensor])).has_value())) {
    return absl::InvalidArgumentError(
        absl::StrCat("PushNonzero of ", tensors_[tensor].name(), ": ", nonzero.size(),
                     " bytes say which blocks of ", kZeroBlock, " elements are zeros, but it ",
                     tensors_[tensor].buffer() ? "is a buffer" : "has others"));
  }
  const absl::StatusOr<bool> to_send = pushed_.Mark(tensor);
  if (!to_send.ok()) return to_send.status();
  if (!*to_send) return absl::OkStatus();
  if (Reduces(tensor)) {
    options_.reducer->Offer(tensor);
  } else {
    Send(tensor, nonzero);
  }
  return absl::OkStatus();
}

absl::Status StepExchange::PushUntil(size_t tensor, size_t bytes) {
  const absl::StatusOr<bool> to_send = pushed_.MarkBegun(tensor);
  if (!to_send.ok()) return to_send.status();
  // Ranks add up whole tensors.
  if (*to_send && !Reduces(tensor)) window_->AddUntil(tensor, bytes);
  return absl::OkStatus();
}

bool StepExchange::Reduces(size_t tensor) const {
  return options_.reducer != nullptr && !tensors_[tensor].buffer();
}

void StepExchange::Send(size_t tensor, std::string_view nonzero) {
  if (sent_.Mark(tensor).ok()) window_->Add(tensor, nonzero);
}

void StepExchange::OnReduced(size_t tensor, bool any) {
  if (any) Send(tensor);
}

void StepExchange::OnBroken(const absl::Status& why) {
  {
    absl::MutexLock lock(&reducer_mu_);
    broken_.Update(why);
  }
  options_.wake();
}

absl::Status StepExchange::AwaitReduced(const AnswerQueue::Wait& wait) {
  Reducer& reducer = *options_.reducer;
  const auto broken = [this] {
    absl::MutexLock lock(&reducer_mu_);
    return broken_;
  };
  reducer.Close();
  absl::Status status = wait([&] { return reducer.done() || !broken().ok(); });
  if (status.ok()) status = broken();
  if (status.ok()) return status;
  if (absl::IsDeadlineExceeded(status)) {
    status = absl::DeadlineExceededError(absl::StrCat(status.message(), "; ", reducer.Missing()));
  }
  // The caller may write its gradients again.
  reducer.Abort();
  window_->Abandon();
  return status;
}

absl::Status StepExchange::AwaitPushes(const AnswerQueue::Wait& wait) {
  if (!pushed_.open()) return absl::FailedPreconditionError("Complete: no step is open");
  if (options_.reducer != nullptr) {
    if (absl::Status reduced = AwaitReduced(wait); !reduced.ok()) return reduced;
  }
  if (calls_.JoinsCalls(options_.step_leader)) {
    rest_ = window_->TakeRest(options_.step_leader, kMostCarriedBytes);
  }
  return window_->AwaitAcknowledged(wait, options_.step_leader);
}

absl::StatusOr<Verdict> StepExchange::AwaitVerdict(const AnswerQueue::Wait& wait,
                                                   const Share& share, uint64_t data_epoch,
                                                   absl::Span<const uint32_t> pulled,
                                                   bool at_once) {
  auto request = std::make_shared<CompleteRequest>();
  request->set_step(step_);
  request->set_attempt(attempt_);
  for (const uint32_t slice : sent_.none()) request->add_none(slice);
  request->set_part(layout_.part());
  request->set_composition(options_.window.composition);
  *request->mutable_share() = share;
  request->set_data_epoch(data_epoch);
  for (SliceData& slice : std::exchange(rest_, {})) *request->add_pushed() = std::move(slice);
  if (scale_ != 1) request->set_pushed_scale(scale_);
  request->mutable_pulled()->Add(pulled.begin(), pulled.end());
  request->set_at_once(at_once);
  // The leader's answers to pushes may be on their way yet.
  const auto wait_for = [&](const std::function<bool()>& done) {
    absl::Status status = wait([&] { return done() || !window_->error().ok(); });
    if (status.ok() && !done()) status = window_->error();
    return status;
  };
  absl::StatusOr<CompleteReply> reply =
      calls_.AwaitComplete(options_.step_leader, std::move(request), wait_for);
  if (!reply.ok()) {
    window_->Abandon();  // the caller may write its gradients again
    return reply.status();
  }
  Verdict verdict = std::move(*reply->mutable_verdict());
  if (verdict.step() != step_ ||
      (verdict.outcome() == Verdict::RETRY && verdict.attempt() < attempt_)) {
    return absl::InternalError(absl::StrCat(
        "the step leader (shard ", options_.step_leader, ") answered step ", step_, ", attempt ",
        attempt_, " with a verdict of step ", verdict.step(), ", attempt ", verdict.attempt()));
  }
  if (verdict.outcome() == Verdict::RETRY) {
    attempt_ = verdict.attempt() + 1;
    Begin();
    for (const size_t tensor : sent_.marked()) window_->Add(tensor);
  } else {
    pushed_.Close();
    sent_.Close();
    KeepValues(*std::move(reply));
  }
  return verdict;
}

void StepExchange::KeepValues(CompleteReply reply) {
  if (reply.values().empty()) return;
  const auto owner = std::make_shared<CompleteReply>(std::move(reply));
  pulled_.emplace();
  pulled_->head.set_version(step_);
  pulled_->slices = ViewsOf(owner->values());
  for (TensorSlice& slice : pulled_->slices) slice.owner = owner;
}

absl::Status StepExchange::AwaitReaders(const AnswerQueue::Wait& wait) {
  const auto readers = std::make_shared<Readers>();
  for (const uint32_t shard : window_->TakeBorrowers()) {
    // Its answer to Complete has said so.
    if (shard == options_.step_leader) continue;
    auto request = std::make_shared<PullRequest>();  // of no slices: for its version alone
    request->set_version(step_);
    ++readers->open;
    calls_.Pull(shard, std::move(request), [readers](const absl::StatusOr<TensorPull>& reply) {
      --readers->open;
      if (readers->error.ok()) readers->error = reply.status();
    });
  }
  if (readers->open == 0) return absl::OkStatus();
  if (absl::Status waited = wait([&] { return readers->open == 0; }); !waited.ok()) return waited;
  return readers->error;
}

}  // namespace parley
