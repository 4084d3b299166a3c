#include "client/clock_exchange.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/contribution.h"
#include "client/gradient_check.h"

namespace parley {

ClockExchange::ClockExchange(const Options& options, const std::vector<TensorSpec>& tensors,
                             const SliceLayout& layout, const TensorArena& gradients,
                             ServiceCalls& calls)
    : options_(options),
      tensors_(tensors),
      layout_(layout),
      gradients_(gradients),
      calls_(calls),
      groups_(options.group_bytes) {}

void ClockExchange::Open(uint64_t clock, uint32_t attempt, double weight, bool has_samples,
                         std::vector<uint64_t> seen) {
  clock_ = clock;
  attempt_ = attempt;
  weight_ = weight;
  seen_ = std::move(seen);
  acks_ = std::make_shared<Acks>();
  skipped_ = false;
  absl::MutexLock lock(&mu_);
  open_ = true;
  has_samples_ = has_samples;
  pushed_.assign(tensors_.size(), false);
  (void)groups_.TakeAll();
  sent_ = 0;
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
  if (!options_.NeedsWholeGradient()) SendTensor(tensor, options_.sum ? 1 : weight_);
  return absl::OkStatus();
}

std::vector<SliceData> ClockExchange::Encode(size_t tensor, double factor) const {
  const TensorSpec& spec = tensors_[tensor];
  std::vector<SliceData> slices;
  for (const PlacedSlice& placed : layout_.pushes(tensor)) {
    SliceData& slice = slices.emplace_back();
    slice.set_slice(placed.slice);
    slice.set_dtype(spec.dtype());
    Weigh(spec.dtype(), gradients_.tensor(tensor).subspan(placed.begin, placed.bytes),
          spec.buffer() ? 1 : factor, slice.mutable_data());
  }
  return slices;
}

void ClockExchange::SendTensor(size_t tensor, double factor) {
  std::vector<SliceData> slices = Encode(tensor, factor);  // not under the lock: it copies
  std::vector<SliceGroup> full;
  {
    absl::MutexLock lock(&mu_);
    const std::vector<PlacedSlice>& placed = layout_.pushes(tensor);
    for (size_t i = 0; i < slices.size(); ++i) {
      pushed_bytes_ += slices[i].data().size();
      groups_.Add(placed[i].shard, std::move(slices[i]), full);
    }
    sent_ += full.size();
  }
  Send(std::move(full));
}

void ClockExchange::Send(std::vector<SliceGroup> groups) {
  for (SliceGroup& group : groups) {
    auto request = std::make_shared<PushRequest>();
    request->set_step(clock_);
    request->set_attempt(attempt_);
    request->set_contributor(options_.contributor);
    request->set_part(layout_.part());
    for (SliceData& slice : group.slices) {
      request->add_seen(slice.slice() < seen_.size() ? seen_[slice.slice()] : 0);
      *request->add_slices() = std::move(slice);
    }
    calls_.Push(group.shard, std::move(request), [acks = acks_](absl::StatusOr<PushReply> reply) {
      ++acks->answered;
      if (!reply.ok()) {
        if (acks->error.ok()) acks->error = reply.status();
        return;
      }
      for (const int outcome : reply->outcomes()) {
        ++(outcome == STALE ? acks->refused : acks->applied);
      }
    });
  }
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
  const double scale = options_.clip_norm > 0 ? check.ClipScale(options_.clip_norm) : 1;
  for (const size_t tensor : marked) {
    if (!skipped_) SendTensor(tensor, (options_.sum ? 1 : weight_) * scale);
  }
  std::vector<SliceGroup> rest;
  uint64_t sent = 0;
  {
    absl::MutexLock lock(&mu_);
    rest = groups_.TakeAll();
    sent_ += rest.size();
    sent = sent_;
  }
  Send(std::move(rest));
  const absl::Status waited =
      wait([acks = acks_, sent] { return acks->answered == sent || !acks->error.ok(); });
  return waited.ok() ? acks_->error : waited;
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
  } else if (acks_->refused != 0) {
    request->set_fate(CompleteRequest::REFUSED);
    request->set_partly_applied(acks_->applied != 0);
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
