#ifndef PARLEY_WORKER_DEVICE_DEVICE_GROUP_H_
#define PARLEY_WORKER_DEVICE_DEVICE_GROUP_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker/device/kernels.h"

namespace parley {

// The devices of a node that reduce together, as one rank of them sees it: of one epoch of the
// group. When a rank is lost, all others get an error, abort, and join another group with the next
// epoch. The methods give work to the communication stream of the rank's device; no call waits
// longer than its deadline. All ranks call them in the same order. One thread, but for Abort.
//
// Errors: DeadlineExceeded where the others did not answer in time, Unavailable where one of them
// or the way to it is lost, Cancelled after Abort, else Internal. After any error the group is
// aborted, and all further calls say so.
class DeviceGroup {
 public:
  struct Options {
    std::string id;      // from MakeId of rank 0, the same for all
    uint64_t epoch = 0;  // of the group, for messages
    uint32_t rank = 0;
    uint32_t ranks = 1;
    // Asked now and then while the others are waited for: true ends that with Cancelled.
    std::function<bool()> cancelled;
  };
  virtual ~DeviceGroup() = default;

  // Some of the values, and whose they are.
  struct Part {
    uint64_t send = 0;     // in elements
    uint64_t receive = 0;  // the same, or where no part is
    uint64_t count = 0;
    uint32_t rank = 0;
  };
  // Of each part its rank receives the sum of all ranks' values, in the same memory. What others
  // have where they receive nothing is undefined afterwards. All ranks name the same parts; no part
  // is received over what another one sends.
  virtual absl::Status Reduce(std::byte* values, absl::Span<const Part> parts, BucketType type,
                              absl::Time deadline) = 0;
  // Of each part all ranks receive what its rank sends, in the same memory. All ranks name the same
  // parts.
  virtual absl::Status Broadcast(std::byte* values, absl::Span<const Part> parts, BucketType type,
                                 absl::Time deadline) = 0;
  // Rank r receives the sum of all ranks' values [r * count, (r + 1) * count). All memory is the
  // device's.
  virtual absl::Status ReduceScatter(const std::byte* send, std::byte* receive, uint64_t count,
                                     BucketType type, absl::Time deadline) = 0;
  // All ranks receive rank r's values at [r * count, (r + 1) * count).
  virtual absl::Status AllGather(const std::byte* send, std::byte* receive, uint64_t count,
                                 BucketType type, absl::Time deadline) = 0;
  // Waits until done() says so, and looks for lost ranks meanwhile: that an event behind what was
  // asked for has passed, say. An error of done() is one of the group.
  virtual absl::Status Await(const std::function<absl::StatusOr<bool>()>& done,
                             absl::Time deadline) = 0;
  // Ends what is under way, wherever it hangs. Any thread.
  virtual void Abort() = 0;
};

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_DEVICE_GROUP_H_
