// TableSlice: an update that is computed before it is decided.
#include <utility>

#include "server/parameter_shard/table_slice.h"

namespace parley {
namespace {

// Of a slice's update: what it takes to take it over, and to look at a gradient that is mostly
// zeros.
constexpr uint64_t kToTake = 64;
constexpr uint64_t kToLook = 4;

}  // namespace

AheadUpdate::Before TableSlice::Before(std::shared_ptr<const GatheredGradient> gradient) const {
  AheadUpdate::Before before;
  before.training = training_;
  before.gradient = std::move(gradient);
  before.values = values_.PinVersion(values_.newest());
  if (state_ != nullptr) before.state = Pin(state_);
  before.step_count = optimizer_steps_ + 1;
  return before;
}

AheadUpdate::After TableSlice::After() {
  if (other_values_ == nullptr) other_values_ = value_pool_->Take(value_bytes());
  if (state_ != nullptr && other_state_ == nullptr) other_state_ = pool_->Take(state_bytes());
  return {other_values_, other_state_};
}

std::shared_ptr<AheadUpdate> TableSlice::UpdateAheadOfGradient(const SliceUpdate& update) {
  if (!mostly_zero_) return nullptr;
  of_zeros_ = std::make_shared<AheadUpdate>(update, Before(nullptr), After());
  return of_zeros_;
}

std::shared_ptr<AheadUpdate> TableSlice::UpdateAhead(const SliceUpdate& update) {
  if (of_zeros_ != nullptr && !of_zeros_->CanBegin(update)) DropAhead();
  ahead_ = std::make_shared<AheadUpdate>(update, Before(gradient_.Share()), After(), of_zeros_);
  return ahead_;
}

void TableSlice::CallOffAhead() {
  if (of_zeros_ != nullptr) of_zeros_->CallOff();
  if (ahead_ != nullptr && !ahead_->IsShort()) ahead_->CallOff();
}

uint64_t TableSlice::ElementsLeft(const SliceUpdate& update) const {
  if (ahead_ == nullptr || !ahead_->Expects(update)) return elements();
  if (ahead_->HasEnded()) return elements() / kToTake;
  return ahead_->IsNearlyDone() ? elements() / kToLook : elements();
}

bool TableSlice::TakeAhead(const SliceUpdate& update) {
  if (ahead_ == nullptr || !ahead_->Expects(update)) {
    // What has begun reads what is to be changed now: a copy of that would take longer.
    for (AheadUpdate* const other : {ahead_.get(), of_zeros_.get()}) {
      if (other != nullptr && !other->CallOff()) other->Await().IgnoreError();
    }
    DropAhead();
    return false;
  }
  if (ahead_->IsShort()) ahead_->Run();
  if (ahead_->CallOff() || !ahead_->Await().ok()) {
    DropAhead();
    return false;
  }
  mostly_zero_ = ahead_->WasMostlyZero();
  gradient_.TakeBack();
  other_values_ = values_.Put(update.step, std::move(other_values_));
  std::swap(state_, other_state_);
  if (other_state_ != nullptr && other_state_->pinned()) other_state_.reset();
  ++optimizer_steps_;
  ahead_.reset();
  of_zeros_.reset();
  became_of_ahead_ = Ahead::kTaken;
  return true;
}

void TableSlice::DropAhead() {
  if (ahead_ == nullptr && of_zeros_ == nullptr) return;
  const auto is_over = [](const std::shared_ptr<AheadUpdate>& update) {
    return update == nullptr || update->CallOff() || update->HasEnded();
  };
  // The second one first: it may be about to go on from the other.
  const bool over = is_over(ahead_);
  if (ahead_ != nullptr && over) gradient_.TakeBack();
  if (!is_over(of_zeros_) || !over) {
    other_values_.reset();
    other_state_.reset();
  }
  if (ahead_ != nullptr) became_of_ahead_ = Ahead::kDropped;
  ahead_.reset();
  of_zeros_.reset();
}

}  // namespace parley
