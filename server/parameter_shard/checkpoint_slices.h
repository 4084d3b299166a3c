#ifndef PARLEY_SERVER_PARAMETER_SHARD_CHECKPOINT_SLICES_H_
#define PARLEY_SERVER_PARAMETER_SHARD_CHECKPOINT_SLICES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/checkpoint/reader.h"
#include "server/parameter_shard/routing.h"
#include "server/parameter_shard/table_slice.h"

namespace parley {

// Reads the slices of one shard out of a checkpoint, in the order of Routing::own_slices, on
// kReaders threads of its own that stay at most kAhead slices ahead, so that the disk, the sums and
// whoever starts the slices work at the same time. Made and used by LoadCheckpoint, on one thread.
class CheckpointSlices {
 public:
  static constexpr size_t kReaders = 4;  // some wait for the disk while others sum
  static constexpr size_t kAhead = 8;    // also how many slices' bytes are in memory
  // So many slices before they are read the disk is told of them: of readers side by side the
  // system does not see what comes next, still less in a file that another cut has written.
  static constexpr size_t kAnnounced = 0;

  struct Read {
    uint32_t slice = 0;
    SliceStart start;  // views of memory that lives until the next call of Next
  };

  // All must outlive this. on_check, stop: as LoadCheckpoint.
  CheckpointSlices(const CheckpointReader& reader, const Routing& routing,
                   const std::function<void(uint64_t)>& on_check,
                   const std::function<bool()>& stop);
  ~CheckpointSlices();  // waits for reads of the disk that are under way
  CheckpointSlices(const CheckpointSlices&) = delete;
  CheckpointSlices& operator=(const CheckpointSlices&) = delete;

  // Call it as often as there are slices, or until an error: the codes of LoadCheckpoint. The last
  // slice comes only when the sums of all that was read are right.
  absl::StatusOr<const Read*> Next();

 private:
  // The bytes of a slice's values (first) and of its state. Used again, since fresh memory of the
  // size of a slice costs more than reading into it.
  struct Place {
    std::vector<std::string> bytes;
    Read read;
    absl::Status status;
    bool whole = false;  // under mu_: a reader has ended with it, and it is not done
  };

  // OK, or that no more is wanted.
  absl::Status GoesOn() const;
  void ReadSlices();
  void Announce(uint32_t id) const;
  absl::Status ReadSlice(uint32_t id, Place& place) const;
  absl::Status ReadPiece(const std::string& name, const TensorSpec& tensor, const Slice& slice,
                         std::string& bytes) const;
  bool MayRead() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stop_ || begun_ < done_ + kAhead;
  }
  bool HasNext() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return places_[taken_ % kAhead].whole; }

  const CheckpointReader& reader_;
  const Routing& routing_;
  const std::function<void(uint64_t)>& on_check_;
  const std::function<bool()>& stop_told_;
  // Slice i in places_[i % kAhead]: a reader's from its beginning until it is whole, then Next's
  // until it is done.
  Place places_[kAhead];

  absl::Mutex mu_;
  size_t announced_ ABSL_GUARDED_BY(mu_) = 0;  // to the disk
  size_t begun_ ABSL_GUARDED_BY(mu_) = 0;      // by the readers
  size_t taken_ ABSL_GUARDED_BY(mu_) = 0;      // given by Next
  size_t done_ ABSL_GUARDED_BY(mu_) = 0;       // of these, no longer looked at
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::thread readers_[kReaders];
};

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_CHECKPOINT_SLICES_H_
