#ifndef PARLEY_WORKER_DEVICE_GRADIENT_DELIVERY_H_
#define PARLEY_WORKER_DEVICE_GRADIENT_DELIVERY_H_

#include <cstddef>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker/device/gradient_path.h"

namespace parley {

// Pushes what comes to the host by a GradientPath, on a thread of its own: backward, which keeps a
// core busy telling the device what to do, goes on meanwhile. It owns the thread; the path outlives
// it.
class GradientDelivery {
 public:
  using Push = std::function<absl::Status(size_t bucket, absl::Span<const std::byte> values)>;
  // patience: with the device, for each bucket. push: on the thread.
  GradientDelivery(GradientPath& path, absl::Duration patience, Push push);
  ~GradientDelivery();
  GradientDelivery(const GradientDelivery&) = delete;
  GradientDelivery& operator=(const GradientDelivery&) = delete;

  // More was sent: so many times Deliver. Any thread.
  void Sent(size_t buckets = 1);
  // Waits until all that was sent is pushed. The first error of the path or of a push; after it
  // nothing is pushed any more.
  absl::Status AwaitAll();

 private:
  void Run();
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stopping_ || (left_ > 0 && error_.ok());
  }
  bool IsDone() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return left_ == 0 || !error_.ok(); }

  GradientPath& path_;
  const absl::Duration patience_;
  const Push push_;

  absl::Mutex mu_;
  size_t left_ ABSL_GUARDED_BY(mu_) = 0;  // buckets that are sent and not pushed
  absl::Status error_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_GRADIENT_DELIVERY_H_
