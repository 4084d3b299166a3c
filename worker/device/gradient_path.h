#ifndef PARLEY_WORKER_DEVICE_GRADIENT_PATH_H_
#define PARLEY_WORKER_DEVICE_GRADIENT_PATH_H_

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker/device/device.h"
#include "worker/device/device_ring.h"
#include "worker/device/staging.h"

namespace parley {

// How the gradients of a step leave a device, bucket by bucket, while backward goes on:
//
//   compute:  ... backward | pack bucket | backward ...
//                                 \ event
//   to host:                        copy into pinned memory
//                                                 \ event
//   host:                                           push
//
// Small gradients travel packed, by pinned blocks of this path's own; large ones go from where they
// are to pinned memory of the caller's (SendDirect). Send is called by backward, as soon as the
// last gradient of a bucket is there, and waits for nothing: where there is no room, because as
// many buckets are on their way as there are pinned blocks, it says Unavailable. Deliver is called
// by whoever pushes: another thread, or the training thread after backward.
class GradientPath {
 public:
  struct Options {
    size_t bucket_bytes = 0;  // of the largest one
    size_t packed = 2;        // blocks of device memory for packed buckets
    size_t most_pinned = 8;
  };
  // The device outlives it.
  static absl::StatusOr<std::unique_ptr<GradientPath>> Make(ComputeDevice& device,
                                                            const Options& options);
  // Waits for the copies that are under way.
  ~GradientPath();

  // Gives the streams what brings the bucket's gradients, times `scale`, to the host; `bytes` is
  // the whole of it. What the compute stream is given from then on may write to the pieces'
  // tensors.
  absl::Status Send(size_t bucket, absl::Span<const Piece> pieces, float scale, BucketType type,
                    size_t bytes, absl::Time deadline);
  // The same of one large tensor, as it is and from where it lies: it must stay so until it is
  // delivered. It goes to memory of the caller's, which is pinned, and is delivered from its
  // beginning, in pieces of at most so many bytes: how many there are.
  absl::StatusOr<size_t> SendDirect(size_t bucket, const std::byte* tensor,
                                    absl::Span<std::byte> host, size_t piece_bytes);

  // The same, of float32 of which most is zeros, by ComputeDevice::CopyNonzero (`nonzero` as
  // there); it is delivered as a whole. Unavailable where the device cannot; then nothing was sent.
  absl::Status SendNonzero(size_t bucket, const float* tensor, absl::Span<std::byte> host,
                           absl::Span<uint8_t> nonzero);

  // Waits for the oldest bucket that was sent and gives it to `push`, whose memory it is until that
  // returns. False where none is on its way.
  using Push = absl::FunctionRef<absl::Status(size_t bucket, absl::Span<const std::byte> values)>;
  absl::StatusOr<bool> Deliver(absl::Time deadline, Push push);

 private:
  struct Sent {
    size_t bucket = 0;
    std::optional<size_t> block;  // of staging_; none: it is direct
    absl::Span<const std::byte> values;
    std::unique_ptr<DeviceEvent> copied;
  };

  explicit GradientPath(ComputeDevice& device) : device_(device) {}
  absl::StatusOr<std::unique_ptr<DeviceEvent>> TakeEvent();
  // What is copied next comes after what the compute stream has been given.
  absl::Status FollowCompute(DeviceEvent& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(order_mu_);
  // To the host; the event is the copy's end.
  absl::Status Copy(DeviceEvent& event, const std::byte* from, absl::Span<std::byte> host)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(order_mu_);

  ComputeDevice& device_;
  std::unique_ptr<Staging> staging_;

  absl::Mutex order_mu_;  // of what the streams are given; before mu_
  std::unique_ptr<DeviceRing> ring_ ABSL_GUARDED_BY(order_mu_);

  absl::Mutex mu_;
  std::deque<Sent> sent_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<DeviceEvent>> events_ ABSL_GUARDED_BY(mu_);  // to be used again
};

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_GRADIENT_PATH_H_
