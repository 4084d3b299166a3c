#ifndef PARLEY_CLIENT_TESTING_REFUSING_PEERS_H_
#define PARLEY_CLIENT_TESTING_REFUSING_PEERS_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/coordinator_client.h"
#include "client/forwarding_coordinator.h"
#include "client/shard_client.h"

namespace parley {

// Peers whose every call is refused: a test overrides those that it is about.
class RefusingCoordinator : public ForwardingCoordinator<RefusingCoordinator> {
 public:
  template <class Request, class Reply>
  void Forward(CoordinatorMethod<Request, Reply>, const Request&, absl::Time, Done<Reply> done) {
    done(absl::UnimplementedError(absl::StrCat("nobody is expected to send a ",
                                               Request::descriptor()->name(), " in this test")));
  }
};

#define PARLEY_REFUSE(Method)                                                              \
  void Method(const Method##Request&, absl::Time, Done<Method##Reply> done) override {     \
    done(absl::UnimplementedError("nobody is expected to call " #Method " in this test")); \
  }

class RefusingShard : public ShardClient {
 public:
  PARLEY_REFUSE(Initialize)
  PARLEY_REFUSE(Push)
  PARLEY_REFUSE(Complete)
  PARLEY_REFUSE(Enter)
  PARLEY_REFUSE(Close)
  PARLEY_REFUSE(Decide)
  PARLEY_REFUSE(Advance)
  PARLEY_REFUSE(Pull)
  PARLEY_REFUSE(WhyFailed)
};

#undef PARLEY_REFUSE

}  // namespace parley

#endif  // PARLEY_CLIENT_TESTING_REFUSING_PEERS_H_
