#include "worker/device/gradient_delivery.h"

#include <utility>

#include "common/clock/steady_now.h"

namespace parley {

GradientDelivery::GradientDelivery(GradientPath& path, absl::Duration patience, Push push)
    : path_(path), patience_(patience), push_(std::move(push)), thread_([this] { Run(); }) {}

GradientDelivery::~GradientDelivery() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  thread_.join();
}

void GradientDelivery::Sent(size_t buckets) {
  absl::MutexLock lock(&mu_);
  left_ += buckets;
}

absl::Status GradientDelivery::AwaitAll() {
  absl::MutexLock lock(&mu_);
  // The thread waits for the device no longer than its patience, and push has its own deadlines.
  mu_.Await(absl::Condition(this, &GradientDelivery::IsDone));
  return error_;
}

void GradientDelivery::Run() {
  absl::MutexLock lock(&mu_);
  while (true) {
    mu_.Await(absl::Condition(this, &GradientDelivery::HasWork));
    if (stopping_) return;
    mu_.Unlock();
    const absl::StatusOr<bool> delivered = path_.Deliver(SteadyNow() + patience_, push_);
    mu_.Lock();
    --left_;
    error_.Update(delivered.status());
  }
}

}  // namespace parley
