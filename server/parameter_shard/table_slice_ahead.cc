// TableSlice: an update that is computed before it is decided.
#include <utility>

#include "server/parameter_shard/table_slice.h"

namespace parley {

std::shared_ptr<AheadUpdate> TableSlice::UpdateAhead(const SliceUpdate& update) {
  if (other_values_ == nullptr) other_values_ = value_pool_->Take(value_bytes());
  if (state_ != nullptr && other_state_ == nullptr) other_state_ = pool_->Take(state_bytes());
  AheadUpdate::Before before;
  before.training = training_;
  before.gradient = gradient_.Share();
  before.values = values_.PinVersion(values_.newest());
  if (state_ != nullptr) before.state = Pin(state_);
  before.step_count = optimizer_steps_ + 1;
  ahead_ = std::make_shared<AheadUpdate>(update, std::move(before),
                                         AheadUpdate::After{other_values_, other_state_});
  return ahead_;
}

void TableSlice::CallOffAhead() {
  if (ahead_ != nullptr) ahead_->CallOff();
}

bool TableSlice::TakeAhead(const SliceUpdate& update) {
  if (ahead_ == nullptr) return false;
  const bool expected = ahead_->Expects(update) && !ahead_->CallOff();
  if (!expected || !ahead_->Await().ok()) {
    DropAhead();
    return false;
  }
  gradient_.TakeBack();
  other_values_ = values_.Put(update.step, std::move(other_values_));
  std::swap(state_, other_state_);
  if (other_state_ != nullptr && other_state_->pinned()) other_state_.reset();
  ++optimizer_steps_;
  ahead_.reset();
  became_of_ahead_ = Ahead::kTaken;
  return true;
}

void TableSlice::DropAhead() {
  if (ahead_ == nullptr) return;
  if (ahead_->CallOff() || ahead_->HasEnded()) {
    gradient_.TakeBack();
  } else {
    other_values_.reset();
    other_state_.reset();
  }
  ahead_.reset();
  became_of_ahead_ = Ahead::kDropped;
}

}  // namespace parley
