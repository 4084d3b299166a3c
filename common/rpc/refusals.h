#ifndef PARLEY_COMMON_RPC_REFUSALS_H_
#define PARLEY_COMMON_RPC_REFUSALS_H_

#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace parley {

// Why somebody may be refused: he sends no TLS (or HTTP/2); has connected and says nothing; has no
// certificate, or none of the job; says no token, or a wrong one.
inline constexpr absl::string_view kWhyRefused[] = {
    "garbage", "idle", "no certificate", "wrong certificate", "no token", "wrong token"};

// Passes on why somebody was refused, until its owner wants to hear of it no more: gRPC's
// connections, which hold this, may live on for a while after their server. Thread-safe.
class Refusals {
 public:
  // `told` must not wait. May be empty.
  using Told = std::function<void(absl::string_view why)>;
  explicit Refusals(Told told) : told_(std::move(told)) {}

  void Tell(absl::string_view why) {
    absl::MutexLock lock(&mu_);
    if (told_) told_(why);
  }
  // When it returns `told` does not run any more.
  void Stop() {
    absl::MutexLock lock(&mu_);
    told_ = nullptr;
  }

 private:
  absl::Mutex mu_;
  Told told_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parley

#endif  // PARLEY_COMMON_RPC_REFUSALS_H_
