#ifndef PARLEY_CLIENT_PUSHED_TENSORS_H_
#define PARLEY_CLIENT_PUSHED_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "client/slice_layout.h"
#include "proto/types.pb.h"

namespace parley {

// Which tensors of the open step a contributor has pushed: each at most once. Owned by a
// StepExchange or a ClockExchange. Thread-safe: Mark is called by the threads of backward.
class PushedTensors {
 public:
  // Both must outlive it.
  PushedTensors(const std::vector<TensorSpec>& tensors, const SliceLayout& layout)
      : tensors_(tensors), layout_(layout) {}

  // counts: else what is pushed is accepted and forgotten, as the gradient of no samples is none,
  // whatever its bytes are.
  void Open(uint64_t step, bool counts);
  void Close() { Open(0, false); }
  bool open() const;

  // Whether the tensor is to be sent. InvalidArgument for no tensor, FailedPrecondition where no
  // step is open or the tensor was pushed already.
  absl::StatusOr<bool> Mark(size_t tensor);
  // The same of its beginning; Mark is to follow.
  absl::StatusOr<bool> MarkBegun(size_t tensor);
  // FailedPrecondition where it has not.
  absl::Status CheckWhole() const;
  std::vector<size_t> marked() const;
  // Slices of the tensors that are not marked: their contribution is none.
  std::vector<uint32_t> none() const;

 private:
  absl::Status Check(size_t tensor) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::vector<TensorSpec>& tensors_;
  const SliceLayout& layout_;

  mutable absl::Mutex mu_;
  uint64_t step_ ABSL_GUARDED_BY(mu_) = 0;  // 0: none is open
  bool counts_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<bool> marked_ ABSL_GUARDED_BY(mu_);
  std::vector<bool> begun_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parley

#endif  // PARLEY_CLIENT_PUSHED_TENSORS_H_
