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
  if (training.state_names().size() > SliceTraining::kMostStates)
    return absl::InternalError("too many state tensors");
  after_.values->Recall();
  if (after_.state != nullptr) after_.state->Recall();

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
    if (absl::Status status = Apply<T>(begin, *sum, tile); !status.ok()) return status;
  }
  mostly_zero_ = zeros.holds();
  if (before_.gradient == nullptr) return absl::OkStatus();
  absl::Status stands = before_.gradient->LentStands(contributors_);
  return stands.ok() ? stands : training.In(stands);
}

template <class T>
absl::Status AheadUpdate::Apply(uint64_t begin, absl::Span<const float> sum,
                                absl::Span<float> scratch) {
  if (after_.owed == nullptr) {
    return ApplyTo<T>(begin, sum, scratch, before_.state.get(), after_.state.get(), 0);
  }
  const auto apply = [&](uint64_t first, uint64_t last, OwedBlock block) {
    const Buffer* const from = block.in_other ? after_.state.get() : before_.state.get();
    Buffer* to = block.in_other ? after_.former_state.get() : after_.state.get();
    // Not all in one step.
    const bool has_its_turn = (before_.step_count + first / kTile) % (kMostOwed + 1) == 0;
    OwedBlock next{block.in_other, 0};
    if (before_.gradient == nullptr && block.steps < kMostOwed && !has_its_turn) {
      next = {!block.in_other, static_cast<uint8_t>(block.steps + 1)};
      to = nullptr;
    }
    after_.owed->Set(first, last, next);
    return ApplyTo<T>(first, sum.subspan(first - begin, last - first),
                      scratch.subspan(first - begin, last - first), from, to, block.steps);
  };
  const uint64_t end = begin + sum.size();
  if (before_.owed == nullptr) return apply(begin, end, OwedBlock());
  return before_.owed->ForRuns(begin, end, apply);
}

template <class T>
absl::Status AheadUpdate::ApplyTo(uint64_t begin, absl::Span<const float> sum,
                                  absl::Span<float> scratch, const Buffer* from, Buffer* to,
                                  uint32_t owed) {
  const SliceTraining& training = *before_.training;
  const size_t count = sum.size();
  absl::InlinedVector<FromTo<T>, SliceTraining::kMostStates> states;
  for (size_t i = 0; i < training.state_names().size(); ++i) {
    const size_t at = i * training.state_stride();
    const auto* const values = reinterpret_cast<const T*>(from->data() + at) + begin;
    absl::Span<T> written;
    if (to != nullptr) written = {reinterpret_cast<T*>(to->data() + at) + begin, count};
    states.emplace_back(absl::MakeConstSpan(values, count), written);
  }
  return training.Apply<T>(update_, before_.step_count, sum, scratch,
                           FromTo<T>(before_.values->as<T>().subspan(begin, count),
                                     after_.values->as<T>().subspan(begin, count)),
                           absl::MakeConstSpan(states), owed);
}

}  // namespace parley
