#ifndef PARLEY_COMMON_RPC_REFUSALS_H_
#define PARLEY_COMMON_RPC_REFUSALS_H_

#include <functional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace parley {

// Why somebody is refused.
inline constexpr absl::string_view kGarbage = "garbage";  // he sends no TLS, or no HTTP/2
inline constexpr absl::string_view kIdle = "idle";        // he has connected and says nothing
inline constexpr absl::string_view kNoCertificate = "no certificate";
inline constexpr absl::string_view kWrongCertificate = "wrong certificate";
inline constexpr absl::string_view kNoToken = "no token";
inline constexpr absl::string_view kWrongToken = "wrong token";
inline constexpr absl::string_view kWhyRefused[] = {kGarbage,          kIdle,    kNoCertificate,
                                                    kWrongCertificate, kNoToken, kWrongToken};

// Passes on why somebody was refused, until its owner wants to hear of it no more: gRPC's
// connections, which hold this, may live on for a while after their server. Thread-safe.
class Refusals {
 public:
  // `told` must not wait. May be empty. peer: who it was, as far as it is known ("10.0.0.1:7000",
  // "one of ..."); empty: it is not.
  using Told = std::function<void(absl::string_view why, const std::string& peer)>;
  explicit Refusals(Told told) : told_(std::move(told)) {}

  void Tell(absl::string_view why, const std::string& peer) {
    absl::MutexLock lock(&mu_);
    if (told_) told_(why, peer);
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
