#ifndef PARLEY_WORKER_DEVICE_GROUP_STREAM_H_
#define PARLEY_WORKER_DEVICE_GROUP_STREAM_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "worker/device/device.h"
#include "worker/device/device_group.h"

namespace parley {

// What the devices of a node group do together: all ranks must ask for the same in the same order,
// and one of them that is lost must be noticed while the others' streams wait for it. A thread,
// from Form to Abort, finds the other ranks, asks for one work after the other, and looks until
// each has ended; another one listens whether the group still stands.
//
// Form and Abort: the training thread. All else: any thread. The device outlives it.
class GroupStream {
 public:
  struct Group {
    // Finds the other ranks; on the thread. cancelled(): they are not wanted any more, asked as
    // DeviceGroup::Options say.
    std::function<absl::StatusOr<std::unique_ptr<DeviceGroup>>(
        const std::function<bool()>& cancelled)>
        join;
    // A work was launched or has ended, or there is an error; on the thread.
    std::function<void()> wake;
    // Whether its ranks are still those that reduce together. Where they are not what is under way
    // ends by itself, with Cancelled: the thread that calls Abort may be waiting for the device,
    // and the device for a rank that does not come. Asked by a thread that has nothing to do with
    // the device, since the other one, too, may hang in its driver then. Empty: they are.
    std::function<bool()> stands;
    absl::Duration patience = absl::Minutes(10);  // with the others; infinite: until Abort
  };
  struct Work {
    // Gives it to the communication stream, and to others behind it; on the thread.
    std::function<absl::Status(DeviceGroup&)> launch;
    // Where `launch` leaves off: it records it.
    const DeviceEvent* end = nullptr;
    // It has passed; on the thread. May be null.
    std::function<void()> ended;
  };

  // patience: with the device, when a group is left.
  explicit GroupStream(ComputeDevice& device, absl::Duration patience = absl::Minutes(10))
      : device_(device), device_patience_(patience) {}
  ~GroupStream() { Abort().IgnoreError(); }
  GroupStream(const GroupStream&) = delete;
  GroupStream& operator=(const GroupStream&) = delete;

  // Leaves the former group, and begins to find the others of this one. Errors: Abort's.
  absl::Status Form(Group group);
  absl::Duration patience() const { return group_.patience; }

  // Behind all that was given before. Returns its number in this group, from 1.
  uint64_t Give(Work work);
  // Whether the streams have been given it.
  bool IsLaunched(uint64_t number) const;
  // Whether it has passed. Of works that have the same event: all of them.
  bool HasEnded(uint64_t number) const;
  // Of DeviceGroup or `launch`, for good until the next Form: nothing is launched or ends any more.
  absl::Status error() const;

  // Ends what is under way, wherever it hangs, and forgets what was given. When it returns OK
  // nothing is. An error, Internal: the device does not come to an end, or has a fault; what it was
  // given may use the memory of works for good.
  absl::Status Abort();

 private:
  void Run();     // the thread
  void Listen();  // the other one
  absl::Status Serve(DeviceGroup& group);
  // Until the oldest launched work has ended, or there is another one to launch.
  absl::Status AwaitOldest(DeviceGroup& group);
  bool HasMore() const;
  void Fail(const absl::Status& why);

  ComputeDevice& device_;
  const absl::Duration device_patience_;

  // Constant from Form to Abort.
  Group group_;
  std::thread thread_;
  std::thread listener_;

  std::atomic<bool> stopping_ = false;
  mutable absl::Mutex mu_;
  std::shared_ptr<DeviceGroup> among_ ABSL_GUARDED_BY(mu_);  // null: not found yet
  std::deque<Work> given_ ABSL_GUARDED_BY(mu_);              // not launched
  std::deque<Work> launched_ ABSL_GUARDED_BY(mu_);           // not ended
  uint64_t last_given_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t last_launched_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t last_ended_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status failed_ ABSL_GUARDED_BY(mu_);
  bool is_left_ ABSL_GUARDED_BY(mu_) = false;  // for the listener
};

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_GROUP_STREAM_H_
