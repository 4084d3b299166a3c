#include "server/parameter_shard/step_work.h"

#include <algorithm>
#include <utility>

namespace parley {
namespace {

// A piece takes about as long as ten wake-ups.
constexpr uint64_t kPieceElements = 1 << 18;
constexpr uint64_t kFirstElements = 1 << 14;

}  // namespace

StepWork::StepWork(SliceUpdate update, std::vector<uint32_t> contributors,
                   const std::map<uint32_t, double>& weights, bool settles)
    : update_(update),
      settles_(settles),
      contributors_(std::move(contributors)),
      next_elements_(kFirstElements) {
  for (const auto& [contributor, weight] : weights) {
    with_weight_.push_back(contributor);
    weights_.push_back(weight);
  }
}

void StepWork::Add(PullTurn turn, uint32_t id, TableSlice& slice) {
  SliceUpdate update = update_;
  update.contributors = contributors_;
  const uint64_t left = slice.ElementsLeft(update);
  const bool was_ahead = left < slice.elements();
  const bool goes_on = !pieces_.empty() && pieces_.back().elements < next_elements_ &&
                       pieces_.back().turn == turn && pieces_.back().was_ahead == was_ahead;
  if (!goes_on) {
    if (!pieces_.empty() && pieces_.back().turn == PullTurn::kOthers) {
      next_elements_ = std::min(2 * next_elements_, kPieceElements);
    }
    pieces_.push_back({.turn = turn, .was_ahead = was_ahead});
  }
  pieces_.back().slices.push_back(&slice);
  pieces_.back().elements += left;
  piece_of_[id] = pieces_.size() - 1;
  elements_ += left;
}

absl::Status StepWork::Run(size_t piece) const {
  for (TableSlice* const slice : pieces_[piece].slices) {
    SliceUpdate update = update_;
    update.contributors = slice->buffer() ? with_weight_ : contributors_;
    if (slice->buffer()) update.weights = weights_;
    absl::Status status = slice->Update(update);
    if (status.ok() && settles_) status = slice->Settle();
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

void StepWork::End(size_t piece, const absl::Status& status) {
  pieces_[piece].is_done = status.ok();
  error_.Update(status);
  ++ended_;
}

bool StepWork::IsAtWork(uint32_t slice) const {
  const auto it = piece_of_.find(slice);
  return it != piece_of_.end() && !pieces_[it->second].is_done;
}

}  // namespace parley
