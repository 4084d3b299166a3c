// Shard: how much of one member may be parked here. A member waits for one call of a kind; more are
// repetitions whose caller has gone, and end with their deadlines. The number of members is bounded
// by the view.
#include "absl/strings/str_cat.h"
#include "server/parameter_shard/shard.h"

namespace parley {
namespace {

// Of one kind and member.
constexpr size_t kCalls = 16;
// Of a Complete: more than any division of data leads to, and not as much as a message can hold.
constexpr int kRanges = 65536;

template <class Calls>
absl::Status RoomFor(const char* kind, const Calls& parked, uint64_t member, size_t most) {
  if (parked.OfMember(member) < most) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("member ", member, " has ", most, " calls of ",
                                                   kind, " parked here: wait for their answers"));
}

}  // namespace

absl::Status Shard::CheckSize(const CompleteRequest& request) const {
  if (request.none_size() > routing_->view().slices_size()) {
    return absl::InvalidArgumentError(absl::StrCat("`none` names ", request.none_size(),
                                                   " slices, where there are ",
                                                   routing_->view().slices_size()));
  }
  if (request.share().ranges_size() > kRanges) {
    return absl::InvalidArgumentError(absl::StrCat("a share of ", request.share().ranges_size(),
                                                   " ranges: join those that touch"));
  }
  return absl::OkStatus();
}

absl::Status Shard::RoomForComplete(uint64_t member) const {
  return RoomFor("Complete", completes_, member, kCalls);
}

absl::Status Shard::RoomForEnter(uint64_t member) const {
  return RoomFor("Enter", enters_, member, kCalls);
}

absl::Status Shard::RoomForPull(uint64_t member) const {
  // Whoever pulls each slice by itself may do so, and once again.
  return RoomFor("Pull", pulls_, member, kCalls + 2 * routing_->own_slices().size());
}

absl::Status Shard::RoomForWhyFailed(uint64_t member) const {
  return RoomFor("WhyFailed", why_failed_, member, kCalls);
}

}  // namespace parley
