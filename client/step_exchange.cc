#include "client/step_exchange.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/contribution.h"

namespace parley {

StepExchange::StepExchange(const Options& options, const std::vector<TensorSpec>& tensors,
                           const SliceLayout& layout, const TensorArena& gradients,
                           ServiceCalls& calls)
    : options_(options),
      tensors_(tensors),
      layout_(layout),
      gradients_(gradients),
      calls_(calls),
      groups_(options.group_bytes) {}

void StepExchange::Open(uint64_t step, uint32_t attempt, double weight) {
  absl::MutexLock lock(&mu_);
  step_ = step;
  attempt_ = attempt;
  weight_ = weight;
  pushed_.assign(tensors_.size(), false);
  (void)groups_.TakeAll();
  sent_ = 0;
  acks_ = std::make_shared<Acks>();
}

absl::Status StepExchange::Push(size_t tensor) {
  if (tensor >= tensors_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no tensor ", tensor, ": ", tensors_.size(), " are registered"));
  }
  uint64_t step = 0;
  uint32_t attempt = 0;
  double weight = 0;
  std::shared_ptr<Acks> acks;
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
    step = step_;
    attempt = attempt_;
    weight = weight_;
    acks = acks_;
  }
  std::vector<SliceData> slices = Encode(tensor, weight);  // not under the lock: it copies
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
  Send(std::move(full), step, attempt, acks);
  return absl::OkStatus();
}

std::vector<SliceData> StepExchange::Encode(size_t tensor, double weight) const {
  const TensorSpec& spec = tensors_[tensor];
  const bool as_is = options_.sum || spec.buffer();
  std::vector<SliceData> slices;
  for (const PlacedSlice& placed : layout_.pushes(tensor)) {
    SliceData& slice = slices.emplace_back();
    slice.set_slice(placed.slice);
    slice.set_dtype(spec.dtype());
    Weigh(spec.dtype(), gradients_.tensor(tensor).subspan(placed.begin, placed.bytes),
          as_is ? 1 : weight, slice.mutable_data());
  }
  return slices;
}

void StepExchange::Send(std::vector<SliceGroup> groups, uint64_t step, uint32_t attempt,
                        const std::shared_ptr<Acks>& acks) {
  for (SliceGroup& group : groups) {
    auto request = std::make_shared<PushRequest>();
    request->set_step(step);
    request->set_attempt(attempt);
    request->set_contributor(options_.contributor);
    request->set_part(layout_.part());
    for (SliceData& slice : group.slices) *request->add_slices() = std::move(slice);
    // All outcomes are well: added now or before, or too late, of which the verdict will tell.
    calls_.Push(group.shard, std::move(request), [acks](absl::StatusOr<PushReply> reply) {
      ++acks->answered;
      if (!reply.ok() && acks->error.ok()) acks->error = reply.status();
    });
  }
}

absl::Status StepExchange::AwaitPushes(const Wait& wait) {
  std::vector<SliceGroup> rest;
  uint64_t step = 0;
  uint32_t attempt = 0;
  uint64_t sent = 0;
  std::shared_ptr<Acks> acks;
  {
    absl::MutexLock lock(&mu_);
    if (step_ == 0) return absl::FailedPreconditionError("Complete: no step is open");
    rest = groups_.TakeAll();
    sent_ += rest.size();
    step = step_;
    attempt = attempt_;
    sent = sent_;
    acks = acks_;
  }
  Send(std::move(rest), step, attempt, acks);
  const absl::Status waited =
      wait([&acks, sent] { return acks->answered == sent || !acks->error.ok(); });
  return waited.ok() ? acks->error : waited;
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
    sent_ = 0;
    acks_ = std::make_shared<Acks>();
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
