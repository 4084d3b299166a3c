// TableSlice: an update that is computed before it is decided.
#include <utility>

#include "absl/container/inlined_vector.h"
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
  before.owed = owed_;
  before.step_count = optimizer_steps_ + 1;
  return before;
}

AheadUpdate::After TableSlice::After(bool owes) {
  if (other_values_ == nullptr) other_values_ = value_pool_->Take(value_bytes());
  if (state_ != nullptr && other_state_ == nullptr) other_state_ = pool_->Take(state_bytes());
  AheadUpdate::After after{.values = other_values_, .state = other_state_};
  if (owes && other_owed_ == nullptr) other_owed_ = std::make_shared<OwedBlocks>(elements());
  if (owes) {
    after.owed = other_owed_;
    after.former_state = state_;
  }
  return after;
}

std::shared_ptr<AheadUpdate> TableSlice::UpdateAheadOfGradient(const SliceUpdate& update) {
  if (!mostly_zero_) return nullptr;
  // While a checkpoint reads the state, all of it goes elsewhere.
  const bool owes = owed_ != nullptr || (training_->CanOwe() && !state_->pinned());
  of_zeros_ = std::make_shared<AheadUpdate>(update, Before(nullptr), After(owes));
  return of_zeros_;
}

std::shared_ptr<AheadUpdate> TableSlice::UpdateAhead(const SliceUpdate& update) {
  if (of_zeros_ != nullptr && !of_zeros_->CanBegin(update)) DropAhead();
  const bool owes = owed_ != nullptr || other_owed_ != nullptr;
  ahead_ = std::make_shared<AheadUpdate>(update, Before(gradient_.Share()), After(owes), of_zeros_);
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
    AwaitAhead();  // it reads what is to be changed now: a copy of that would take longer
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
  owed_ = other_owed_ != nullptr && other_owed_->HasAny() ? other_owed_ : nullptr;
  other_owed_.reset();
  // Nothing is owed then: nobody pins state_ while something is, nor an update that owes is made of
  // what is pinned.
  if (other_state_ != nullptr && other_state_->pinned()) other_state_.reset();
  ++optimizer_steps_;
  ahead_.reset();
  of_zeros_.reset();
  became_of_ahead_ = Ahead::kTaken;
  return true;
}

void TableSlice::AwaitAhead() {
  for (AheadUpdate* const update : {ahead_.get(), of_zeros_.get()}) {
    if (update != nullptr && !update->CallOff()) update->Await().IgnoreError();
  }
}

absl::Status TableSlice::Settle() {
  if (other_owed_ != nullptr) DropAhead();
  if (owed_ == nullptr) return absl::OkStatus();
  return training_->dtype() == F64 ? SettleAs<double>() : SettleAs<float>();
}

template <class T>
absl::Status TableSlice::SettleAs() {
  const auto settle = [&](uint64_t begin, uint64_t end, OwedBlock block) {
    if (!block.in_other && block.steps == 0) return absl::OkStatus();
    absl::InlinedVector<FromTo<T>, SliceTraining::kMostStates> states;
    for (size_t i = 0; i < training_->state_names().size(); ++i) {
      const size_t at = i * training_->state_stride();
      const auto part = [&](Buffer& buffer) {
        return absl::Span<T>(reinterpret_cast<T*>(buffer.data() + at) + begin, end - begin);
      };
      states.emplace_back(part(block.in_other ? *other_state_ : *state_), part(*state_));
    }
    return training_->ApplyOwed<T>(block.steps, absl::MakeConstSpan(states));
  };
  absl::Status status = owed_->ForRuns(0, elements(), settle);
  if (status.ok()) owed_.reset();
  return status;
}

void TableSlice::DropAhead() {
  if (ahead_ == nullptr && of_zeros_ == nullptr) return;
  if (other_owed_ != nullptr) AwaitAhead();
  other_owed_.reset();
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
