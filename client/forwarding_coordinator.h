#ifndef PARLEY_CLIENT_FORWARDING_COORDINATOR_H_
#define PARLEY_CLIENT_FORWARDING_COORDINATOR_H_

#include <utility>

#include "client/coordinator_client.h"

namespace parley {

// One of its calls.
template <class Request, class Reply>
using CoordinatorMethod = void (CoordinatorClient::*)(const Request&, absl::Time, Done<Reply>);

// A CoordinatorClient whose calls all go the same way: to a function of Derived that may look at
// the request, pass it on, or answer it,
//   template <class Request, class Reply>
//   void Forward(CoordinatorMethod<Request, Reply> method, const Request& request,
//                absl::Time deadline, Done<Reply> done);
// Derived overrides the calls that it treats otherwise.
template <class Derived>
class ForwardingCoordinator : public CoordinatorClient {
 public:
#define PARLEY_FORWARD_WITH(Method, Reply)                                                      \
  void Method(const Method##Request& request, absl::Time deadline, Done<Reply> done) override { \
    static_cast<Derived*>(this)->Forward(&CoordinatorClient::Method, request, deadline,         \
                                         std::move(done));                                      \
  }
#define PARLEY_FORWARD(Method) PARLEY_FORWARD_WITH(Method, Method##Reply)
  PARLEY_FORWARD(Join)
  PARLEY_FORWARD(Heartbeat)
  PARLEY_FORWARD_WITH(Watch, SharedJobState)
  PARLEY_FORWARD(RegisterModel)
  PARLEY_FORWARD(ReportReady)
  PARLEY_FORWARD(ReportVerdicts)
  PARLEY_FORWARD(ReportEvaluation)
  PARLEY_FORWARD(Finish)
  PARLEY_FORWARD(ReportCheckpointFile)
  PARLEY_FORWARD(Fail)
  PARLEY_FORWARD(Leave)
  PARLEY_FORWARD(GetStatus)
  PARLEY_FORWARD(AskForCheckpoint)
  PARLEY_FORWARD(SetWorkers)
  PARLEY_FORWARD(Drain)
  PARLEY_FORWARD(Stop)
#undef PARLEY_FORWARD
#undef PARLEY_FORWARD_WITH

 private:
  // Only Derived may make one: it is what the cast says.
  ForwardingCoordinator() = default;
  friend Derived;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_FORWARDING_COORDINATOR_H_
