#ifndef PARLEY_CLIENT_REDUCE_GROUP_DOOR_H_
#define PARLEY_CLIENT_REDUCE_GROUP_DOOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/shared_memory/local_door.h"
#include "common/shared_memory/memory_segment.h"
#include "proto/local_group.pb.h"

namespace parley {

// What a rank shows the other ranks of its composition.
struct GroupSegments {
  std::shared_ptr<const MemorySegment> words;      // group_words.h
  std::shared_ptr<const MemorySegment> gradients;  // sealed, as all that a peer is shown
  std::shared_ptr<const MemorySegment> values;     // group_values.h
};

// Where the ranks of a node group find each other: each listens by the local name
// `parley-group HOST:PORT` (its address as others know it), and shows its segments to who asks for
// the same composition (proto/local_group.proto). Owned by a SharedMemoryReducer; the methods are
// for any thread.
class GroupDoor {
 public:
  // Unavailable where the name is taken, InvalidArgument where it is too long.
  static absl::StatusOr<std::unique_ptr<GroupDoor>> Open(const std::string& address);

  // From now on those of this composition, and of no other one, are shown these.
  void Show(const GroupComposition& group, uint32_t rank, GroupSegments segments);
  // From now on nobody is shown anything.
  void Hide();

  // Asks the rank at this address. Unavailable: nobody is there, or it is of another composition
  // yet or already; DeadlineExceeded: it does not answer; both: ask again. Internal: what answers
  // is no such rank. PermissionDenied: another user's process.
  static absl::StatusOr<GroupSegments> Ask(const std::string& address,
                                           const GroupComposition& group, uint32_t rank,
                                           uint32_t asked_rank, absl::Time deadline);

 private:
  struct Shown {
    GroupComposition group;
    uint32_t rank = 0;
    GroupSegments segments;
  };
  struct Board {
    absl::Mutex mu;
    std::optional<Shown> shown ABSL_GUARDED_BY(mu);
  };
  class Visit;

  explicit GroupDoor(std::shared_ptr<Board> board) : board_(std::move(board)) {}

  const std::shared_ptr<Board> board_;
  std::unique_ptr<LocalDoor> door_;  // set by Open
};

}  // namespace parley

#endif  // PARLEY_CLIENT_REDUCE_GROUP_DOOR_H_
