#include "common/daemon/last_moment.h"

#include <utility>

namespace parley {

LastMoment::~LastMoment() {
  gone_.Notify();
  std::vector<std::thread> threads;
  {
    absl::MutexLock lock(&mu_);
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

void LastMoment::SetIn(absl::Duration time, std::function<bool()> still) {
  absl::MutexLock lock(&mu_);
  threads_.emplace_back([this, time, still = std::move(still)] {
    if (gone_.WaitFor(time) || (still && !still())) return;
    if (!goes_.test_and_set()) go_();
  });
}

}  // namespace parley
