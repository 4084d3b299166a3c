#ifndef PARLEY_WORKER_CUDA_NCCL_GROUP_H_
#define PARLEY_WORKER_CUDA_NCCL_GROUP_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "worker/cuda/nccl_api.h"
#include "worker/device/device_group.h"

namespace parley {

// A DeviceGroup by NCCL. Its communicator does not block: each call returns at once, and what has
// become of it is asked until a deadline, so that a lost rank ends in an error and an abort, never
// in a hang. (Not so the abort itself, and leaving: NCCL waits for its own work on the GPU in them,
// which has heard of the abort; with a GPU that does nothing any more they do not return.) It owns
// the communicator; the stream is its device's. GroupStream's thread calls it, Abort comes from
// whichever thread has heard of a lost rank.
class NcclGroup final : public DeviceGroup {
 public:
  // The time, injected; sleeps for a moment between two looks.
  struct Clock {
    std::function<absl::Time()> now;
    std::function<void()> pause;
  };
  static Clock RealClock();

  // Waits for the other ranks. Use `Use` of the device before.
  static absl::StatusOr<std::unique_ptr<NcclGroup>> Join(const NcclApi& api, cudaStream_t stream,
                                                         const Options& options,
                                                         absl::Time deadline, Clock clock);
  // Leaves in an orderly way if nothing has failed: waits a little for what is under way.
  ~NcclGroup() override;

  absl::Status Reduce(std::byte* values, absl::Span<const Part> parts, BucketType type,
                      absl::Time deadline) override;
  absl::Status Broadcast(std::byte* values, absl::Span<const Part> parts, BucketType type,
                         absl::Time deadline) override;
  absl::Status ReduceScatter(const std::byte* send, std::byte* receive, uint64_t count,
                             BucketType type, absl::Time deadline) override;
  absl::Status AllGather(const std::byte* send, std::byte* receive, uint64_t count, BucketType type,
                         absl::Time deadline) override;
  absl::Status Await(const std::function<absl::StatusOr<bool>()>& done,
                     absl::Time deadline) override;
  void Abort() override;

 private:
  NcclGroup(const NcclApi& api, cudaStream_t stream, const Options& options, Clock clock);

  // Calls, and asks what has become of it until it is no longer under way.
  absl::Status Call(const char* what, absl::Time deadline,
                    const std::function<ncclResult_t(ncclComm_t)>& call);
  // One launch for all parts.
  absl::Status CallForEach(
      const char* what, absl::Span<const Part> parts, absl::Time deadline,
      const std::function<ncclResult_t(const Part& part, ncclComm_t communicator)>& call);
  // Until done() says so, or the communicator has an error. `done` is called without the lock: it
  // may hang in the driver, and Abort would end what it hangs behind.
  absl::Status Until(const char* what, absl::Time deadline,
                     const std::function<absl::StatusOr<bool>(ncclResult_t state)>& done);
  // The first error counts; aborts.
  absl::Status Failed(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Result(const char* what, ncclResult_t result) const;
  std::string Who() const;

  const NcclApi api_;
  int gpu_ = 0;  // of the thread that has joined
  const cudaStream_t stream_;
  const Options options_;
  const Clock clock_;

  absl::Mutex mu_;
  ncclComm_t communicator_ ABSL_GUARDED_BY(mu_) = nullptr;  // nullptr: aborted
  absl::Status failed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parley

#endif  // PARLEY_WORKER_CUDA_NCCL_GROUP_H_
