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
#include "server/parameter_shard/routing.h"

namespace parley {

// Who gave what to a slice in the open attempt: (contributor, part) pairs. Identities, never
// counts: a repetition of one cannot stand in for another.
using PartIdentity = std::pair<uint32_t, uint32_t>;

// Aborted: the contributor has written again what it had lent.
absl::Status LentIsWritten(uint32_t contributor);

// The gradient of one trained slice in the open attempt of the open step. Added up as it arrives,
// in one float32 buffer; or kept apart and added by contributor, then part, where the order matters
// or a contribution may be left out. What is lent stays where it is until it is added up. Owned by
// a TableSlice, and called as that is.
class GradientAccumulator {
 public:
  GradientAccumulator(uint64_t elements, bool apart, BufferPool* pool)
      : elements_(elements), apart_(apart), pool_(pool) {}

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

  // Whether some of them are lent, so that SumOf pays: it reads them once, and writes little.
  bool HasLent() const { return lent_ > 0; }
  // Elements begin .. begin + out.size() of the Sum of these contributors; bit for bit the same. In
  // `out`, or where they are all of one that was lent, and then of use only if LentStands says so
  // when they have been read. Aborted as with Sum. Not after Sum.
  absl::StatusOr<absl::Span<const float>> SumOf(absl::Span<const uint32_t> contributors,
                                                uint64_t begin, absl::Span<float> out);
  // Aborted where one of these contributors has written again what it lent.
  absl::Status LentStands(absl::Span<const uint32_t> contributors) const;

  // Forgets the attempt.
  void Drop();

 private:
  struct Contribution {
    PartRange range;
    const float* values = nullptr;  // of the range
    std::shared_ptr<const void> owner;
    Loan loan;  // without a count where they are this accumulator's own
  };

  float* Cleared();
  void Sort();
  bool Counts(const Contribution& contribution, absl::Span<const uint32_t> contributors) const;
  // What these contributors gave of elements begin .. begin + out.size(), added to `out`, or put
  // there where `fresh`. Aborted as with Sum.
  absl::Status AddTo(absl::Span<const uint32_t> contributors, uint64_t begin, bool fresh,
                     absl::Span<float> out) const;
  // The one whose elements from..to are the sum's; nullptr where several are, or some of none.
  const Contribution* OnlyOne(absl::Span<const uint32_t> contributors, uint64_t from,
                              uint64_t to) const;

  const uint64_t elements_;
  const bool apart_;
  BufferPool* const pool_;
  std::vector<PartIdentity> identities_;
  std::vector<Contribution> contributions_;  // kept apart, or lent
  size_t lent_ = 0;                          // of them
  bool sorted_ = true;
  std::shared_ptr<Buffer> sum_;  // float32; kept between steps
  bool started_ = false;         // sum_ holds something of this attempt
};

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_ACCUMULATOR_H_
