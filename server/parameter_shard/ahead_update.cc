#include "server/parameter_shard/ahead_update.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "common/nonzero_blocks.h"

namespace parley {
namespace {

// Elements of the sum at a time, which stays in a near cache. Many: after each, what was written
// past the caches is waited for (optimizer_kernels.h).
constexpr size_t kTile = 8192;
static_assert(kTile % kZeroBlock == 0, "MostlyZero counts whole blocks of each tile");

}  // namespace

AheadUpdate::AheadUpdate(const SliceUpdate& update, Before before, After after,
                         std::shared_ptr<AheadUpdate> of_zeros)
    : contributors_(update.contributors.begin(), update.contributors.end()),
      update_(update),
      before_(std::move(before)),
      after_(std::move(after)),
      of_zeros_(std::move(of_zeros)) {
  update_.contributors = contributors_;
  update_.weights = {};
}

bool AheadUpdate::Expects(const SliceUpdate& verdict) const {
  return update_.step == verdict.step && update_.contributors == verdict.contributors &&
         update_.divisor == verdict.divisor && update_.clip_scale == verdict.clip_scale &&
         update_.rate_factor == verdict.rate_factor;
}

bool AheadUpdate::CanBegin(const SliceUpdate& update) const {
  return update_.step == update.step && update_.rate_factor == update.rate_factor;
}

void AheadUpdate::Run() {
  State expected = State::kWaiting;
  if (!state_.compare_exchange_strong(expected, State::kBegun)) return;
  const bool goes_on = of_zeros_ != nullptr && !of_zeros_->CallOff() && of_zeros_->Await().ok();
  status_ = before_.training->dtype() == F64 ? Compute<double>(goes_on) : Compute<float>(goes_on);
  before_ = Before();
  after_ = After();
  ended_.Notify();
}

bool AheadUpdate::CallOff() {
  State expected = State::kWaiting;
  if (state_.compare_exchange_strong(expected, State::kCalledOff)) {
    before_ = Before();
    after_ = After();
    return true;
  }
  return expected == State::kCalledOff;
}

absl::Status AheadUpdate::Await() const {
  ended_.WaitForNotification();
  return status_;
}

template <class T>
absl::Status AheadUpdate::Compute(bool only_new) {
  const SliceTraining& training = *before_.training;
  const size_t states = training.state_names().size();
  if (states > SliceTraining::kMostStates) return absl::InternalError("too many state tensors");
  after_.values->Recall();
  if (after_.state != nullptr) after_.state->Recall();
  const absl::Span<const T> values = before_.values->as<T>();
  const absl::Span<T> new_values = after_.values->as<T>();

  MostlyZero zeros(training.elements());
  float scratch[kTile] = {};
  // What needs not be done again are blocks of zeros.
  const uint64_t tile_elements = only_new ? kZeroBlock : kTile;
  for (uint64_t begin = 0; begin < training.elements(); begin += tile_elements) {
    const size_t count = std::min(tile_elements, training.elements() - begin);
    const absl::Span<float> tile(scratch, count);
    absl::StatusOr<absl::Span<const float>> sum = tile;
    if (only_new && before_.gradient->IsKnownZero(contributors_, begin, begin + count)) {
      zeros.CountZeros(count);
      continue;
    }
    if (before_.gradient != nullptr) {
      sum = before_.gradient->SumOf(contributors_, begin, tile);
      if (!sum.ok()) return training.In(sum.status());
      if ((only_new || !zeros.IsRefuted()) && zeros.Count(*sum) && only_new) continue;
    }
    absl::InlinedVector<FromTo<T>, SliceTraining::kMostStates> state;
    for (size_t i = 0; i < states; ++i) {
      const size_t at = i * training.state_stride();
      state.emplace_back(
          absl::MakeConstSpan(reinterpret_cast<const T*>(before_.state->data() + at) + begin,
                              count),
          absl::MakeSpan(reinterpret_cast<T*>(after_.state->data() + at) + begin, count));
    }
    absl::Status status =
        training.Apply<T>(update_, before_.step_count, *sum, tile,
                          FromTo<T>(values.subspan(begin, count), new_values.subspan(begin, count)),
                          absl::MakeConstSpan(state));
    if (!status.ok()) return status;
  }
  mostly_zero_ = zeros.holds();
  if (before_.gradient == nullptr) return absl::OkStatus();
  absl::Status stands = before_.gradient->LentStands(contributors_);
  return stands.ok() ? stands : training.In(stands);
}

}  // namespace parley
