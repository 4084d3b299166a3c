#ifndef PARLEY_SERVER_COORDINATOR_TICKER_H_
#define PARLEY_SERVER_COORDINATOR_TICKER_H_

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace parley {

// Calls a function every `period` on a thread of its own, until it is destroyed. The function must
// not block for longer than a moment: time stands still meanwhile.
class Ticker {
 public:
  Ticker(absl::Duration period, std::function<void()> tick);
  ~Ticker();
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

 private:
  void Run();

  const absl::Duration period_;
  const std::function<void()> tick_;
  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_TICKER_H_
