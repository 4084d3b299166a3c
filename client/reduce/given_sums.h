#ifndef PARLEY_CLIENT_REDUCE_GIVEN_SUMS_H_
#define PARLEY_CLIENT_REDUCE_GIVEN_SUMS_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/reduce/reducer.h"

namespace parley {

// The Reducer of ranks whose gradients are added up by somebody else, before they come to the
// session's memory: among GPUs (worker/device/group_gradient_path.h). Whoever does that says of
// each tensor when the sums of the ranges that this rank owns lie there. Values are handed round by
// another reducer, which is given no gradients.
//
// Owned by the session; who adds up uses it on the training thread, between the session's verbs.
class GivenSums final : public Reducer, private Reducer::Listener {
 public:
  explicit GivenSums(std::unique_ptr<Reducer> values) : values_(std::move(values)) {}
  ~GivenSums() override { Abort(); }

  // The composition that the session is in, which has the ranges; nullptr where in none.
  const Group* group() const { return group_.has_value() ? &*group_ : nullptr; }
  // Of this rank's gradients in the open step.
  double weight() const { return weight_; }
  // The sums of the tensor's ranges that this rank owns lie in gradient memory, of all ranks'
  // gradients times their weights; any: some rank had one. Once a step for each tensor with ranges.
  void Given(size_t tensor, bool any);

  absl::Status Form(Group group, Reducer::Listener* listener) override;
  void Open(uint64_t step, double weight) override;
  void Offer(size_t /*tensor*/) override {}
  void Close() override { values_->Close(); }
  bool done() const override { return open_ == 0; }
  std::string Missing() const override;
  void Share(const Values& values, absl::Span<const std::byte> bytes) override {
    values_->Share(values, bytes);
  }
  void Withhold(const Values& values) override { values_->Withhold(values); }
  Taken Take(const Values& values, absl::Span<std::byte> to) override {
    return values_->Take(values, to);
  }
  void Watch(std::optional<uint32_t> rank) override { values_->Watch(rank); }
  void Abort() override;

 private:
  // Of values_, on its thread.
  void OnReduced(size_t /*tensor*/, bool /*any*/) override {}
  void OnAllReduced() override {}
  void OnShared() override { listener_->OnShared(); }
  void OnBroken(const absl::Status& why) override { listener_->OnBroken(why); }

  const std::unique_ptr<Reducer> values_;
  Reducer::Listener* listener_ = nullptr;  // constant from Form to Abort
  std::optional<Group> group_;
  double weight_ = 0;
  std::vector<bool> given_;  // by tensor, in the open step
  size_t open_ = 0;          // tensors that are not
};

}  // namespace parley

#endif  // PARLEY_CLIENT_REDUCE_GIVEN_SUMS_H_
