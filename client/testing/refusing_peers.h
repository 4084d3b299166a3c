#ifndef PARLEY_CLIENT_TESTING_REFUSING_PEERS_H_
#define PARLEY_CLIENT_TESTING_REFUSING_PEERS_H_

#include "absl/status/status.h"
#include "client/coordinator_client.h"
#include "client/shard_client.h"

namespace parley {

// Peers whose every call is refused: a test overrides those that it is about.
#define PARLEY_REFUSE(Method)                                                              \
  void Method(const Method##Request&, absl::Time, Done<Method##Reply> done) override {     \
    done(absl::UnimplementedError("nobody is expected to call " #Method " in this test")); \
  }

class RefusingCoordinator : public CoordinatorClient {
 public:
  PARLEY_REFUSE(Join)
  PARLEY_REFUSE(Heartbeat)
  PARLEY_REFUSE(Watch)
  PARLEY_REFUSE(RegisterModel)
  PARLEY_REFUSE(ReportReady)
  PARLEY_REFUSE(ReportVerdicts)
  PARLEY_REFUSE(ReportEvaluation)
  PARLEY_REFUSE(Finish)
  PARLEY_REFUSE(ReportCheckpointFile)
  PARLEY_REFUSE(Fail)
  PARLEY_REFUSE(Leave)
  PARLEY_REFUSE(GetStatus)
};

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
