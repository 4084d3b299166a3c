#include "client/reduce/given_sums.h"

#include <utility>

namespace parley {

absl::Status GivenSums::Form(Group group, Reducer::Listener* listener) {
  Abort();
  listener_ = listener;
  Group without_gradients = group;
  for (std::vector<Range>& ranges : without_gradients.ranges) ranges.clear();
  absl::Status formed = values_->Form(std::move(without_gradients), this);
  if (formed.ok()) group_ = std::move(group);
  return formed;
}

void GivenSums::Open(uint64_t step, double weight) {
  values_->Open(step, weight);
  weight_ = weight;
  if (!group_.has_value()) return;
  open_ = 0;
  given_.assign(group_->ranges.size(), true);
  for (size_t i = 0; i < given_.size(); ++i) {
    if (group_->ranges[i].empty()) continue;
    given_[i] = false;
    ++open_;
  }
}

void GivenSums::Given(size_t tensor, bool any) {
  if (tensor >= given_.size() || given_[tensor]) return;
  given_[tensor] = true;
  --open_;
  listener_->OnReduced(tensor, any);
  if (open_ == 0) listener_->OnAllReduced();
}

std::string GivenSums::Missing() const {
  return open_ == 0 ? "" : "the sums of its node group's GPUs have not come";
}

void GivenSums::Abort() {
  values_->Abort();
  group_.reset();
  given_.clear();
  open_ = 0;
}

}  // namespace parley
