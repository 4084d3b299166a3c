#include "server/coordinator/await_rule_or_signal.h"

#include <grpcpp/client_context.h>

#include <string>

#include "common/clock/steady_notification.h"
#include "common/clock/steady_now.h"
#include "common/job/job_file.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/status.h"
#include "proto/coordinator.grpc.pb.h"
#include "server/coordinator/await_rule.h"

namespace parley {
namespace {

// What a coordinator at an address says of the job, within `patience`. A blocking call, on main's
// thread before the server is up: where the last channel of the callback API goes on gRPC's own
// thread, as it may after a callback, gRPC 1.51 aborts.
absl::StatusOr<GetStatusReply> AskForJob(const std::string& job, absl::Duration patience,
                                         const std::string& address,
                                         const SharedCredentials& credentials) {
  GetStatusRequest request;
  request.set_job(job);
  GetStatusReply reply;
  grpc::ClientContext context;
  context.set_deadline(ToGrpcDeadline(SteadyNow() + patience));
  SayToken(credentials, context);
  const auto stub = Coordinator::NewStub(MakeChannel(address, credentials));
  const absl::Status status = FromGrpc(stub->GetStatus(&context, request, &reply), address);
  if (!status.ok()) return status;
  return reply;
}

}  // namespace

absl::StatusOr<JobLog> AwaitRuleOrSignal(Daemon& daemon, FileSystem& files,
                                         const JobDirectory& directory, bool stands_by,
                                         bool* stood_by) {
  const std::string& job = daemon.job().name();
  const absl::Duration liveness = Liveness(daemon.job());
  SteadyNotification signalled;
  daemon.OnSignal([&](int) {
    if (!signalled.HasBeenNotified()) signalled.Notify();
  });
  SuccessionSeams seams;
  seams.now = SteadyNow;
  seams.wait = [&](absl::Time until) { return !signalled.WaitUntil(until); };
  seams.ask = [&](const std::string& address) {
    return AskForJob(job, liveness / 4, address, daemon.credentials());
  };
  auto log = AwaitRule(files, directory, job, liveness, seams);
  const auto other_rules = [&] {
    return absl::IsAlreadyExists(log.status()) || absl::IsUnavailable(log.status());
  };
  *stood_by = stands_by && other_rules();
  if (*stood_by) {
    daemon.log().Info("stands by until the coordinator that rules has gone",
                      {{"why", std::string(log.status().message())}});
  }
  while (stands_by && other_rules() && seams.wait(SteadyNow() + liveness / 2)) {
    log = AwaitRule(files, directory, job, liveness, seams);
  }
  daemon.OnSignal(nullptr);
  if (signalled.HasBeenNotified()) return absl::CancelledError("told to end");
  return log;
}

}  // namespace parley
