#include "worker/last_moment.h"

namespace parley {

LastMoment::~LastMoment() {
  gone_.Notify();
  if (thread_.joinable()) thread_.join();
}

void LastMoment::SetIn(absl::Duration time) {
  thread_ = std::thread([this, time] {
    if (!gone_.WaitFor(time)) go_();
  });
}

}  // namespace parley
