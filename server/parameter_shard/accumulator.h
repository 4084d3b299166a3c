#ifndef PARLEY_SERVER_PARAMETER_SHARD_ACCUMULATOR_H_
#define PARLEY_SERVER_PARAMETER_SHARD_ACCUMULATOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/tensor_slice.h"
#include "proto/types.pb.h"
#include "server/parameter_shard/buffer.h"
#include "server/parameter_shard/gathered_gradient.h"
#include "server/parameter_shard/routing.h"

namespace parley {

// Who gave what to a slice in the open attempt: (contributor, part) pairs. Identities, never
// counts: a repetition of one cannot stand in for another.
using PartIdentity = std::pair<uint32_t, uint32_t>;

// The gradient of one trained slice in the open attempt of the open step. Added up as it arrives,
// in one float32 buffer; or kept apart and added by contributor, then part, where the order matters
// or a contribution may be left out. What is lent stays where it is until it is added up. What it
// has shared it changes no more, and goes on with a copy. Owned by a TableSlice, and called as that
// is.
class GradientAccumulator {
 public:
  GradientAccumulator(uint64_t elements, bool apart, BufferPool* pool)
      : elements_(elements),
        apart_(apart),
        pool_(pool),
        gathered_(std::make_shared<GatheredGradient>(elements, apart)) {}

  bool Has(uint32_t contributor, uint32_t part) const;
  // In the order of arrival.
  const std::vector<PartIdentity>& identities() const { return identities_; }

  // A contribution that is not there yet: the range's elements, of a float type, each times
  // `scale`. One that is lent as float32, and has an owner and the scale 1, is not copied, and read
  // where it lies until Drop. Aborted, and nothing added, where it is lent and copied, and has been
  // written again meanwhile.
  absl::Status Add(const PartRange& range, const TensorSlice& data, double scale = 1);

  // The contributions of these contributors (ascending), added up; elements that no part covers are
  // 0. Kept until Drop; where contributions were added as they came, all of them are in it. Aborted
  // where one of them was lent and has been written again, and the sum is of no use.
  absl::StatusOr<absl::Span<float>> Sum(absl::Span<const uint32_t> contributors);

  bool HasLent() const { return gathered_->HasLent(); }
  // As GatheredGradient's; bit for bit a part of Sum. Not after Sum.
  absl::StatusOr<absl::Span<const float>> SumOf(absl::Span<const uint32_t> contributors,
                                                uint64_t begin, absl::Span<float> out);
  absl::Status LentStands(absl::Span<const uint32_t> contributors) const {
    return gathered_->LentStands(contributors);
  }

  // What there is, for another thread to read: it stays as it is. Not after Sum.
  std::shared_ptr<const GatheredGradient> Share();
  // That thread has read it, and this happens after that.
  void TakeBack() { shared_ = false; }

  // Forgets the attempt.
  void Drop();

 private:
  // To be changed: a copy where the other is shared, or one of nothing.
  GatheredGradient& Own(bool as_it_is);
  float* Cleared(GatheredGradient& all);

  const uint64_t elements_;
  const bool apart_;
  BufferPool* const pool_;
  std::vector<PartIdentity> identities_;
  std::shared_ptr<GatheredGradient> gathered_;
  bool shared_ = false;
};

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_ACCUMULATOR_H_
