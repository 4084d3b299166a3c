#ifndef PARLEY_CLIENT_PIPELINE_PEER_WAITER_H_
#define PARLEY_CLIENT_PIPELINE_PEER_WAITER_H_

#include <functional>
#include <string>

#include "absl/status/status.h"

namespace parley {

// How a thread waits for messages of its pipeline where another one has the session.
class PeerWaiter {
 public:
  virtual ~PeerWaiter() = default;
  // As Session::AwaitPeers.
  virtual absl::Status AwaitPeers(const std::string& what, const std::function<bool()>& done) = 0;
  virtual void Wake() = 0;  // any thread
};

}  // namespace parley

#endif  // PARLEY_CLIENT_PIPELINE_PEER_WAITER_H_
