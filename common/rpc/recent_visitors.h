#ifndef PARLEY_COMMON_RPC_RECENT_VISITORS_H_
#define PARLEY_COMMON_RPC_RECENT_VISITORS_H_

#include <deque>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace parley {

// Who has come to a gRPC server of late. gRPC does not say whose handshake or call it has refused
// (its verifiers and processors of metadata are told no address); but who fails in a handshake has
// come no longer ago than that may take. Has no clock. Thread-safe.
class RecentVisitors {
 public:
  // recent: how long ago, at most.
  explicit RecentVisitors(absl::Duration recent) : recent_(recent) {}

  void Came(std::string peer, absl::Time now);

  // "10.0.0.1:7000"; "one of ..." where there are several, and then those who came last; empty
  // where there is none.
  std::string Who(absl::Time now) const;

 private:
  struct Visitor {
    std::string peer;
    absl::Time came;
  };
  const absl::Duration recent_;
  mutable absl::Mutex mu_;
  std::deque<Visitor> visitors_ ABSL_GUARDED_BY(mu_);  // those who came first are at the front
};

}  // namespace parley

#endif  // PARLEY_COMMON_RPC_RECENT_VISITORS_H_
