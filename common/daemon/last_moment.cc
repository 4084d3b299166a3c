#include "common/daemon/last_moment.h"

namespace parley {

LastMoment::~LastMoment() {
  gone_.Notify();
  for (std::thread& thread : threads_) thread.join();
}

void LastMoment::SetIn(absl::Duration time) {
  threads_.emplace_back([this, time] {
    if (!gone_.WaitFor(time) && !goes_.test_and_set()) go_();
  });
}

}  // namespace parley
