#ifndef PARLEY_SERVER_PARAMETER_SHARD_ROUTING_H_
#define PARLEY_SERVER_PARAMETER_SHARD_ROUTING_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/types.pb.h"

namespace parley {

// Elements of a block of the global norm; slices begin at multiples of it.
inline constexpr uint64_t kBlockElements = 65536;

// An addend over [begin, end) of a slice, in elements of the slice.
struct PartRange {
  uint32_t contributor = 0;
  uint32_t part = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
};

// One ClusterView as one shard sees it: checked once, with the look-ups that every call needs.
// Immutable.
class Routing {
 public:
  // InvalidArgument, with what is wrong, where the view contradicts itself, does not have this
  // shard, or has a tensor that a shard cannot train.
  static absl::StatusOr<std::shared_ptr<const Routing>> Make(ClusterView view, uint32_t shard);

  const ClusterView& view() const { return view_; }
  uint32_t shard() const { return shard_; }
  uint32_t shards() const { return static_cast<uint32_t>(shards_.size()); }
  bool is_leader() const { return view_.step_leader() == shard_; }

  // nullptr where the view does not have it.
  const Member* FindMember(uint64_t id) const;
  const Member* FindShard(uint32_t ordinal) const;
  const Member& self() const { return *FindShard(shard_); }
  const Contributor* FindContributor(uint32_t ordinal) const;
  std::vector<uint32_t> Contributors() const;  // ordinals, ascending

  // Member that sends a part; 0 where there is no such contributor or part, or nobody has its place
  // now (the job waits for a replacement).
  uint64_t SenderOf(uint32_t contributor, uint32_t part) const;

  // Slices of this shard, by id.
  const std::vector<uint32_t>& own_slices() const { return own_slices_; }
  bool Owns(uint32_t slice) const { return parts_.count(slice) != 0; }
  const Slice& slice(uint32_t id) const { return view_.slices(static_cast<int>(id)); }
  const TensorSpec& tensor(uint32_t slice_id) const {
    return view_.tensors(static_cast<int>(slice(slice_id).tensor()));
  }

  // The parts of which an own slice's gradient is made, by contributor, then part.
  absl::Span<const PartRange> PartsOf(uint32_t own_slice) const;
  // nullptr where that contributor does not send that part for the slice.
  const PartRange* FindPart(uint32_t own_slice, uint32_t contributor, uint32_t part) const;

  // Whether tensors and slices, and the shards that own them, are the same.
  bool SamePlacement(const Routing& other) const;

  // "worker 1 at 127.0.0.1:4567 (pid 123)", for messages.
  std::string Describe(uint64_t member) const;
  // The member that sends a part, or that nobody does.
  std::string DescribeSender(uint32_t contributor, uint32_t part) const;

 private:
  Routing(ClusterView view, uint32_t shard) : view_(std::move(view)), shard_(shard) {}
  absl::Status Index();
  absl::Status IndexSlice(const Slice& slice);

  const ClusterView view_;
  const uint32_t shard_;
  std::map<uint64_t, const Member*> members_;
  std::map<uint32_t, const Member*> shards_;
  std::map<uint32_t, const Contributor*> contributors_;
  std::vector<uint32_t> own_slices_;
  std::map<uint32_t, std::vector<PartRange>> parts_;  // of own slices
};

// "worker-1", "shard-0".
std::string MemberLabel(const Member& member);

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_ROUTING_H_
