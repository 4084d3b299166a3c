#ifndef PARLEY_SERVER_PARAMETER_SHARD_BUFFER_CANDIDATES_H_
#define PARLEY_SERVER_PARAMETER_SHARD_BUFFER_CANDIDATES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/tensor_slice.h"
#include "proto/types.pb.h"
#include "server/parameter_shard/accumulator.h"
#include "server/parameter_shard/routing.h"

namespace parley {

// The values of a buffer (batch normalisation's statistics) that contributors offer in the open
// attempt. Kept apart: which of them count the verdict says. Owned by a TableSlice, and called as
// that is.
class BufferCandidates {
 public:
  explicit BufferCandidates(DataType dtype) : dtype_(dtype) {}

  bool Has(uint32_t contributor, uint32_t part) const;
  // In the order of arrival.
  const std::vector<PartIdentity>& identities() const { return identities_; }
  // A candidate that is not there yet: the range's elements, of this type. Aborted, and nothing
  // added, where they are lent and have been written again meanwhile.
  absl::Status Add(const PartRange& range, const TensorSlice& data);

  // Whether one of these contributors has offered any.
  bool HasAnyOf(absl::Span<const uint32_t> contributors) const;

  // Writes the parts of the first of these contributors that has any into `values`, all elements.
  void TakeFirst(absl::Span<const uint32_t> contributors, absl::Span<std::byte> values) const;

  // The mean of those that have any, by weight (above 0), in float64 and in this order; elements of
  // which one has no part count as `values` has them. Of a float type. After HasAnyOf.
  void Average(absl::Span<const uint32_t> contributors, absl::Span<const double> weights,
               absl::Span<std::byte> values) const;

  // Forgets the attempt.
  void Drop();

 private:
  struct Candidate {
    PartRange range;
    std::string values;
  };

  // False: it has offered none.
  bool CopyTo(uint32_t contributor, absl::Span<std::byte> values) const;

  const DataType dtype_;
  std::vector<PartIdentity> identities_;
  std::vector<Candidate> candidates_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_BUFFER_CANDIDATES_H_
