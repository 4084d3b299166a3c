#ifndef PARLEY_SERVER_PARAMETER_SHARD_ACCUMULATOR_H_
#define PARLEY_SERVER_PARAMETER_SHARD_ACCUMULATOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/tensor_slice.h"
#include "proto/types.pb.h"
#include "server/parameter_shard/buffer.h"
#include "server/parameter_shard/routing.h"

namespace parley {

// Who gave what to a slice in the open attempt: (contributor, part) pairs. Identities, never
// counts: a repetition of one cannot stand in for another.
using PartIdentity = std::pair<uint32_t, uint32_t>;

// The gradient of one trained slice in the open attempt of the open step. Added up as it arrives,
// in one float32 buffer; or kept apart and added by contributor, then part, where the order matters
// or a contribution may be left out. Owned by a TableSlice; called under the shard's lock.
class GradientAccumulator {
 public:
  GradientAccumulator(uint64_t elements, bool apart, BufferPool* pool)
      : elements_(elements), apart_(apart), pool_(pool) {}

  bool Has(uint32_t contributor, uint32_t part) const;
  // In the order of arrival.
  const std::vector<PartIdentity>& identities() const { return identities_; }

  // A contribution that is not there yet. `bytes`: the range's elements, of a float type.
  void Add(const PartRange& range, DataType dtype, const TensorBytes& bytes);

  // The contributions of these contributors (ascending), added up; elements that no part covers are
  // 0. Kept until Drop; where contributions were added as they came, all of them are in it.
  absl::Span<float> Sum(absl::Span<const uint32_t> contributors);

  // Forgets the attempt.
  void Drop();

 private:
  struct Contribution {
    PartRange range;
    std::shared_ptr<Buffer> values;  // float32, of the range
  };

  float* Cleared();

  const uint64_t elements_;
  const bool apart_;
  BufferPool* const pool_;
  std::vector<PartIdentity> identities_;
  std::vector<Contribution> contributions_;  // where kept apart
  std::shared_ptr<Buffer> sum_;              // float32; kept between steps
  bool started_ = false;                     // sum_ holds something of this attempt
};

// The values of a buffer (batch normalisation's statistics) that contributors offer in the open
// attempt. They are never added up: the verdict takes one contributor's.
class BufferCandidates {
 public:
  bool Has(uint32_t contributor, uint32_t part) const;
  const std::vector<PartIdentity>& identities() const { return identities_; }
  void Add(const PartRange& range, const TensorBytes& bytes);

  // Writes that contributor's parts into `values`, elements of `element_bytes`. False where it has
  // none.
  bool CopyTo(uint32_t contributor, size_t element_bytes, Buffer& values) const;

  void Drop();

 private:
  struct Candidate {
    PartRange range;
    std::string values;
  };
  std::vector<PartIdentity> identities_;
  std::vector<Candidate> candidates_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_ACCUMULATOR_H_
