#include "client/pushed_tensors.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace parley {

void PushedTensors::Open(uint64_t step, bool counts) {
  absl::MutexLock lock(&mu_);
  step_ = step;
  counts_ = counts;
  marked_.assign(tensors_.size(), false);
  begun_.assign(tensors_.size(), false);
}

bool PushedTensors::open() const {
  absl::MutexLock lock(&mu_);
  return step_ != 0;
}

absl::Status PushedTensors::Check(size_t tensor) const {
  if (tensor >= tensors_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no tensor ", tensor, ": ", tensors_.size(), " are registered"));
  }
  if (step_ == 0) {
    return absl::FailedPreconditionError("Push: no step is open, NextStep opens one");
  }
  if (marked_[tensor]) {
    return absl::FailedPreconditionError(
        absl::StrCat("Push: '", tensors_[tensor].name(), "' was pushed already in step ", step_));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> PushedTensors::Mark(size_t tensor) {
  absl::MutexLock lock(&mu_);
  if (absl::Status status = Check(tensor); !status.ok()) return status;
  if (counts_) marked_[tensor] = true;
  return counts_;
}

absl::StatusOr<bool> PushedTensors::MarkBegun(size_t tensor) {
  absl::MutexLock lock(&mu_);
  if (absl::Status status = Check(tensor); !status.ok()) return status;
  if (counts_) begun_[tensor] = true;
  return counts_;
}

absl::Status PushedTensors::CheckWhole() const {
  absl::MutexLock lock(&mu_);
  for (size_t tensor = 0; tensor < begun_.size(); ++tensor) {
    if (!begun_[tensor] || marked_[tensor]) continue;
    return absl::FailedPreconditionError(absl::StrCat("Complete: of '", tensors_[tensor].name(),
                                                      "' only the beginning was pushed in step ",
                                                      step_, " (PushUntil), not all"));
  }
  return absl::OkStatus();
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
