#include "client/pushed_tensors.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace parley {

void PushedTensors::Open(uint64_t step, bool counts) {
  absl::MutexLock lock(&mu_);
  step_ = step;
  counts_ = counts;
  marked_.assign(tensors_.size(), false);
}

bool PushedTensors::open() const {
  absl::MutexLock lock(&mu_);
  return step_ != 0;
}

absl::StatusOr<bool> PushedTensors::Mark(size_t tensor) {
  if (tensor >= tensors_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no tensor ", tensor, ": ", tensors_.size(), " are registered"));
  }
  absl::MutexLock lock(&mu_);
  if (step_ == 0) {
    return absl::FailedPreconditionError("Push: no step is open, NextStep opens one");
  }
  if (marked_[tensor]) {
    return absl::FailedPreconditionError(
        absl::StrCat("Push: '", tensors_[tensor].name(), "' was pushed already in step ", step_));
  }
  if (!counts_) return false;
  marked_[tensor] = true;
  return true;
}

std::vector<size_t> PushedTensors::marked() const {
  absl::MutexLock lock(&mu_);
  std::vector<size_t> tensors;
  for (size_t tensor = 0; tensor < marked_.size(); ++tensor) {
    if (marked_[tensor]) tensors.push_back(tensor);
  }
  return tensors;
}

std::vector<uint32_t> PushedTensors::none() const {
  absl::MutexLock lock(&mu_);
  std::vector<uint32_t> slices;
  for (size_t tensor = 0; tensor < marked_.size(); ++tensor) {
    if (marked_[tensor]) continue;
    for (const PlacedSlice& placed : layout_.pushes(tensor)) slices.push_back(placed.slice);
  }
  return slices;
}

}  // namespace parley
