#ifndef PARLEY_SERVER_PARAMETER_SHARD_GATHERED_GRADIENT_H_
#define PARLEY_SERVER_PARAMETER_SHARD_GATHERED_GRADIENT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/nonzero_blocks.h"
#include "common/tensor_slice.h"
#include "server/parameter_shard/buffer.h"
#include "server/parameter_shard/routing.h"

namespace parley {

// Aborted: the contributor has written again what it had lent.
absl::Status LentIsWritten(uint32_t contributor);

// Finds out whether most of a gradient is zeros, in pieces as long as an embedding's rows. Zero is
// +0, whose step is another one than that of -0.
class MostlyZero {
 public:
  explicit MostlyZero(uint64_t elements) : elements_(elements) {}

  // Whether it is not, by what was counted. To look at the rest would only take time.
  bool IsRefuted() const { return all_ - zeros_ > elements_ / 4; }
  // The next elements; whether they all are.
  bool Count(absl::Span<const float> values) {
    bool all = true;
    for (; !values.empty(); values.remove_prefix(std::min(kPiece, values.size()))) {
      const absl::Span<const float> piece = values.first(std::min(kPiece, values.size()));
      const bool is_zero =
          AllZero({reinterpret_cast<const std::byte*>(piece.data()), piece.size() * sizeof(float)});
      all = all && is_zero;
      zeros_ += is_zero ? piece.size() : 0;
      all_ += piece.size();
    }
    return all;
  }
  // The next so many, which are.
  void CountZeros(size_t count) {
    zeros_ += count;
    all_ += count;
  }
  // Three quarters.
  bool holds() const { return zeros_ > 0 && zeros_ >= all_ - all_ / 4; }

 private:
  static constexpr size_t kPiece = kZeroBlock;
  const uint64_t elements_;
  uint64_t zeros_ = 0;
  uint64_t all_ = 0;  // that were counted
};

// What has come for one trained slice in one attempt: the sum of what was copied and added at once,
// and what is lent or kept apart, where it lies. Plain data of a GradientAccumulator, which alone
// changes it; while it does not, any thread may read it.
class GatheredGradient {
 public:
  GatheredGradient(uint64_t elements, bool apart) : elements_(elements), apart_(apart) {}

  // Contributions, of which some are lent, so that SumOf pays: it reads them once, and writes
  // little.
  bool HasLent() const { return lent_ > 0; }

  // Elements begin .. begin + out.size() of the sum of these contributors (ascending); elements
  // that no part covers are 0. In `out`, or where they are all of one that was lent, and then of
  // use only if LentStands says so when they have been read. Aborted where one of them was lent and
  // has been written again. After Sort.
  absl::StatusOr<absl::Span<const float>> SumOf(absl::Span<const uint32_t> contributors,
                                                uint64_t begin, absl::Span<float> out) const;
  // Whether elements begin .. end of that sum are +0, as far as is known without reading them.
  bool IsKnownZero(absl::Span<const uint32_t> contributors, uint64_t begin, uint64_t end) const;
  // Aborted where one of these contributors has written again what it lent.
  absl::Status LentStands(absl::Span<const uint32_t> contributors) const;

 private:
  friend class GradientAccumulator;

  struct Contribution {
    PartRange range;
    const float* values = nullptr;  // of the range
    std::shared_ptr<const void> owner;
    Loan loan;            // without a count where they are the accumulator's own
    std::string nonzero;  // of the range, as TensorSlice's
  };

  void Sort();
  bool Counts(const Contribution& contribution, absl::Span<const uint32_t> contributors) const;
  // What these contributors gave of elements begin .. begin + out.size(), added to `out`, or put
  // there where `fresh`. Aborted as SumOf.
  absl::Status AddTo(absl::Span<const uint32_t> contributors, uint64_t begin, bool fresh,
                     absl::Span<float> out) const;
  // The one whose elements from..to are the sum's; nullptr where several are, or some of none.
  const Contribution* OnlyOne(absl::Span<const uint32_t> contributors, uint64_t from,
                              uint64_t to) const;

  const uint64_t elements_;
  const bool apart_;
  std::vector<Contribution> contributions_;  // kept apart, or lent
  size_t lent_ = 0;                          // of them
  bool sorted_ = true;
  std::shared_ptr<Buffer> sum_;  // float32; kept between steps
  bool started_ = false;         // sum_ holds something of this attempt
};

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_GATHERED_GRADIENT_H_
