#ifndef PARLEY_WORKER_DEVICE_GROUP_GRADIENT_PATH_H_
#define PARLEY_WORKER_DEVICE_GROUP_GRADIENT_PATH_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "worker/device/device.h"
#include "worker/device/device_group.h"
#include "worker/device/group_stream.h"

namespace parley {

// How the gradients of a step are added up among the devices of a node group and leave them, bucket
// by bucket, while backward goes on:
//
//   compute:        ... backward | pack bucket | backward ...
//                                       \ event
//   communication:                       reduce: to each rank the sums of what it owns
//                                                                              \ event
//   to host:                                                                    copy of what is own
//                                                                                         \ event
//   host:                                                                                  push
//
// So a byte of the node's sum crosses the bus once, not once for each device. Devices must reduce
// in one order: from the last bucket to the first, as backward comes to them, whatever comes first
// here. All ranks send all buckets in each step, those without gradients too: flags, which are
// added up beside the values, say of which tensors anybody had one.
//
// Send: the threads of backward. All else: the training thread.
class GroupGradientPath {
 public:
  // A bucket has this many values and flags, and its parts (in values) these owners. All ranks have
  // the same ones.
  struct Bucket {
    uint64_t values = 0;
    uint64_t flags = 0;
    std::vector<DeviceGroup::Part> parts;  // receive: as send
    // Where the sums of the parts that this rank owns go on the host, one for each: see ToOwner.
    std::vector<std::byte*> own;
  };
  struct Group {
    uint32_t rank = 0;
    uint32_t ranks = 1;
    std::vector<Bucket> buckets;
  };

  // Both outlive it; the stream has been aborted when it goes.
  static absl::StatusOr<std::unique_ptr<GroupGradientPath>> Make(ComputeDevice& device,
                                                                 GroupStream& stream);

  // Before the stream forms a group: who sends what in it. ResourceExhausted as
  // ComputeDevice::Allocate.
  absl::Status Form(Group group);

  // From now on, and before the step's first Send: whether sums go to where Bucket::own says, which
  // is pinned then; else to memory of the path's own, and Deliver gives them.
  void ToOwner(bool directly) { directly_ = directly; }

  // Once a step for each bucket: `pieces` of it, times `scale`; the rest counts as 0. present:
  // flags of the tensors that they are of, by number.
  absl::Status Send(size_t bucket, absl::Span<const Piece> pieces, absl::Span<const size_t> present,
                    float scale);

  // Whether Deliver gives something, or an error.
  bool IsReady() const;
  // Gives what has come: of each bucket the sums of the parts that this rank owns, one behind the
  // other (none where they went to their owner), and the sums of the flags. Returns how many
  // buckets of the step are to come yet: 0 once, when all were given. The stream's error.
  using Push = absl::FunctionRef<absl::Status(size_t bucket, absl::Span<const float> sums,
                                              absl::Span<const float> flags)>;
  absl::StatusOr<size_t> Deliver(Push push);

 private:
  struct Block {
    DeviceBuffer packed;                   // values, flags, and sums of flags
    DeviceBuffer pinned;                   // own parts, and sums of flags
    uint64_t own = 0;                      // values that this rank owns
    bool is_direct = false;                // in this step they have gone to their owner
    std::vector<DeviceGroup::Part> parts;  // those of flags too
    std::unique_ptr<DeviceEvent> is_packed;
    std::unique_ptr<DeviceEvent> is_reduced;
    std::unique_ptr<DeviceEvent> is_copied;
  };

  GroupGradientPath(ComputeDevice& device, GroupStream& stream)
      : device_(device), stream_(stream) {}
  absl::Status MakeRoom(size_t bucket);
  // On the stream's thread.
  absl::Status Launch(DeviceGroup& group, size_t bucket);
  void HostReadsOwn(size_t bucket);

  ComputeDevice& device_;
  GroupStream& stream_;
  DeviceBuffer one_;  // on the device: 1

  // Constant from Form to Form.
  Group group_;
  std::vector<Block> blocks_;  // by bucket
  size_t to_deliver_ = 0;      // of the step; the training thread's

  std::atomic<bool> directly_ = false;
  absl::Mutex order_mu_;  // of what the compute stream is given

  mutable absl::Mutex mu_;
  std::vector<bool> sent_ ABSL_GUARDED_BY(mu_);  // and not given to the stream
  size_t next_ ABSL_GUARDED_BY(mu_) = 0;         // the bucket to give
  std::deque<size_t> ready_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_GROUP_GRADIENT_PATH_H_
