#ifndef PARLEY_CLIENT_GRPC_CALL_H_
#define PARLEY_CLIENT_GRPC_CALL_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/open_calls.h"
#include "common/replies.h"
#include "common/rpc/status.h"

namespace parley {

// A unary method of a generated callback stub.
template <class Stub, class Request, class Reply>
using GrpcMethod = void (Stub::*)(grpc::ClientContext*, const Request*, Reply*,
                                  std::function<void(grpc::Status)>);

// Makes one attempt of a unary call to `peer` (host:port). gRPC has read the request when this
// returns.
template <class Stub, class Request, class Reply>
void StartGrpcCall(const std::shared_ptr<OpenCalls>& calls, Stub* stub,
                   GrpcMethod<Stub, Request, Reply> method, const std::string& peer,
                   const Request& request, absl::Time deadline, Done<Reply> done) {
  struct Call {
    grpc::ClientContext context;
    Reply reply;
    Done<Reply> done;
    std::string peer;
    std::shared_ptr<OpenCalls> calls;
  };
  auto call = std::make_unique<Call>();
  call->context.set_deadline(absl::ToChronoTime(std::min(deadline, absl::Now() + absl::Hours(1))));
  if (!calls->Add(&call->context)) {
    return done(absl::CancelledError(absl::StrCat(peer, ": this process is ending")));
  }
  call->done = std::move(done);
  call->peer = peer;
  call->calls = calls;
  Call* raw = call.release();  // until its end it belongs to gRPC
  (stub->*method)(&raw->context, &request, &raw->reply, [raw](const grpc::Status& status) {
    std::unique_ptr<Call> ended(raw);
    if (status.ok()) {
      ended->done(std::move(ended->reply));
    } else {
      ended->done(FromGrpc(status, ended->peer));
    }
    // The context goes before the call counts as gone: it holds the channel, and a channel whose
    // last holder is a thread of its own gRPC callbacks ends the process (seen with gRPC 1.51.1).
    const std::shared_ptr<OpenCalls> open = ended->calls;
    open->Ended(&ended->context);
    ended.reset();
    open->Gone();
  });
}

}  // namespace parley

#endif  // PARLEY_CLIENT_GRPC_CALL_H_
