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
                   const std::map<uint32_t, double>& weights)
    : update_(update), contributors_(std::move(contributors)), next_elements_(kFirstElements) {
  for (const auto& [contributor, weight] : weights) {
    with_weight_.push_back(contributor);
    weights_.push_back(weight);
  }
}

void StepWork::Add(PullTurn turn, uint32_t id, TableSlice& slice) {
  const bool goes_on =
      !pieces_.empty() && pieces_.back().elements < next_elements_ && pieces_.back().turn == turn;
  if (!goes_on) {
    if (!pieces_.empty() && pieces_.back().turn == PullTurn::kOthers) {
      next_elements_ = std::min(2 * next_elements_, kPieceElements);
    }
    pieces_.emplace_back().turn = turn;
  }
  pieces_.back().slices.push_back(&slice);
  pieces_.back().elements += slice.elements();
  piece_of_[id] = pieces_.size() - 1;
  elements_ += slice.elements();
}

absl::Status StepWork::Run(size_t piece) const {
  for (TableSlice* const slice : pieces_[piece].slices) {
    SliceUpdate update = update_;
    update.contributors = slice->buffer() ? with_weight_ : contributors_;
    if (slice->buffer()) update.weights = weights_;
    if (absl::Status status = slice->Update(update); !status.ok()) return status;
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
