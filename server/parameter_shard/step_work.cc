#include "server/parameter_shard/step_work.h"

namespace parley {
namespace {

// A piece takes about as long as ten wake-ups.
constexpr uint64_t kPieceElements = 1 << 18;

}  // namespace

void StepWork::Add(uint32_t id, TableSlice& slice) {
  if (pieces_.empty() || pieces_.back().elements >= kPieceElements) pieces_.emplace_back();
  pieces_.back().slices.push_back(&slice);
  pieces_.back().elements += slice.elements();
  piece_of_[id] = pieces_.size() - 1;
  elements_ += slice.elements();
}

absl::Status StepWork::Run(size_t piece) const {
  for (TableSlice* const slice : pieces_[piece].slices) {
    SliceUpdate update = update_;
    update.contributors = slice->buffer() ? with_weight_ : contributors_;
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
