#ifndef PARLEY_COMMON_RPC_REPLY_H_
#define PARLEY_COMMON_RPC_REPLY_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock/steady_now.h"
#include "common/replies.h"
#include "common/rpc/deadline.h"
#include "common/rpc/status.h"

namespace parley {

// What a core wants to know of a call's time. Calls without a deadline get `longest`: no call waits
// for ever.
inline CallTime TimeOf(const grpc::CallbackServerContext& context,
                       absl::Duration longest = absl::Hours(1)) {
  const absl::Time now = SteadyNow();
  return {now, FromGrpcDeadline(context.deadline(), now + longest)};
}

// Ends a unary call with what the core answered. `reply` and `reactor` belong to gRPC and live
// until then.
template <class Reply>
Done<Reply> Answer(grpc::ServerUnaryReactor* reactor, Reply* reply) {
  return [reactor, reply](absl::StatusOr<Reply> answer) {
    if (answer.ok()) *reply = std::move(*answer);
    reactor->Finish(ToGrpc(answer.status()));
  };
}

}  // namespace parley

#endif  // PARLEY_COMMON_RPC_REPLY_H_
