#include "client/reference/reference_service.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/reference/value_wire.h"
#include "common/direct/frame.h"
#include "common/rpc/reply.h"
#include "common/rpc/status.h"
#include "common/rpc/tensor_wire.h"

namespace parley {

void ReferenceService::Serve(std::shared_ptr<ReferenceHost> host, const FindDirectReply& direct) {
  absl::MutexLock lock(&mu_);
  host_ = std::move(host);
  direct_ = direct;
}

grpc::ServerUnaryReactor* ReferenceService::FindDirect(grpc::CallbackServerContext* context,
                                                       const FindDirectRequest* /*request*/,
                                                       FindDirectReply* reply) {
  {
    absl::MutexLock lock(&mu_);
    *reply = direct_;
  }
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

bool ReferenceService::TakesDirect() {
  absl::MutexLock lock(&mu_);
  return direct_.port() != 0;
}

template <class Body>
grpc::ServerUnaryReactor* ReferenceService::With(grpc::CallbackServerContext* context,
                                                 const Body& body) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  std::shared_ptr<ReferenceHost> host;
  {
    absl::MutexLock lock(&mu_);
    host = host_;
  }
  const CallTime by_the_wall = TimeOf(*context);
  const bool there = host != nullptr && host->With([&](ReferenceSpace& space, absl::Time now,
                                                       Replies& replies) {
    body(space, CallTime{now, now + (by_the_wall.deadline - by_the_wall.now)}, replies, reactor);
  });
  if (!there) {
    reactor->Finish(ToGrpc(absl::UnavailableError("this process does not serve references now")));
  }
  return reactor;
}

grpc::ServerUnaryReactor* ReferenceService::Open(grpc::CallbackServerContext* context,
                                                 const OpenSessionRequest* request,
                                                 OpenSessionReply* reply) {
  return With(context, [&](ReferenceSpace& space, CallTime time, Replies& replies,
                           grpc::ServerUnaryReactor* reactor) {
    replies.Add(Answer(reactor, reply), space.OnOpen(*request, time.now, replies));
  });
}

grpc::ServerUnaryReactor* ReferenceService::Renew(grpc::CallbackServerContext* context,
                                                  const RenewSessionRequest* request,
                                                  RenewSessionReply* reply) {
  return With(context, [&](ReferenceSpace& space, CallTime time, Replies& replies,
                           grpc::ServerUnaryReactor* reactor) {
    replies.Add(Answer(reactor, reply), space.OnRenew(*request, time.now, replies));
  });
}

grpc::ServerUnaryReactor* ReferenceService::Leave(grpc::CallbackServerContext* context,
                                                  const LeaveSessionRequest* request,
                                                  LeaveSessionReply* reply) {
  return With(context, [&](ReferenceSpace& space, CallTime time, Replies& replies,
                           grpc::ServerUnaryReactor* reactor) {
    space.OnLeave(*request, time.now, replies);
    replies.Add<LeaveSessionReply>(Answer(reactor, reply), LeaveSessionReply());
  });
}

grpc::ServerUnaryReactor* ReferenceService::Call(grpc::CallbackServerContext* context,
                                                 const grpc::ByteBuffer* request,
                                                 grpc::ByteBuffer* reply) {
  const absl::StatusOr<OutgoingCall> call = DecodeCall(*request);
  return With(context, [&](ReferenceSpace& space, CallTime time, Replies& replies,
                           grpc::ServerUnaryReactor* reactor) {
    Done<RemoteCallReply> done = [reactor, reply](const absl::StatusOr<RemoteCallReply>& answer) {
      if (answer.ok()) *reply = EncodeMessage(*answer);
      reactor->Finish(ToGrpc(answer.status()));
    };
    if (!call.ok()) return replies.Add<RemoteCallReply>(std::move(done), call.status());
    space.OnCall(*call, time, replies, std::move(done));
  });
}

grpc::ServerUnaryReactor* ReferenceService::Fork(grpc::CallbackServerContext* context,
                                                 const ForkRequest* request, ForkReply* reply) {
  return With(context, [&](ReferenceSpace& space, CallTime time, Replies& replies,
                           grpc::ServerUnaryReactor* reactor) {
    space.OnFork(*request, time, replies, Answer(reactor, reply));
  });
}

grpc::ServerUnaryReactor* ReferenceService::Drop(grpc::CallbackServerContext* context,
                                                 const DropRequest* request, DropReply* reply) {
  return With(context, [&](ReferenceSpace& space, CallTime time, Replies& replies,
                           grpc::ServerUnaryReactor* reactor) {
    space.OnDrop(*request, time, replies, Answer(reactor, reply));
  });
}

grpc::ServerUnaryReactor* ReferenceService::Fetch(grpc::CallbackServerContext* context,
                                                  const grpc::ByteBuffer* request,
                                                  grpc::ByteBuffer* reply) {
  FetchRequest fetch;
  std::vector<TensorSlice> none;
  const absl::Status decoded = DecodeTensors(*request, kNoSlices, fetch, none);
  const bool direct = TakesDirect();
  return With(context, [&](ReferenceSpace& space, CallTime time, Replies& replies,
                           grpc::ServerUnaryReactor* reactor) {
    Done<FetchedValue> done = [reactor, reply,
                               direct](const absl::StatusOr<FetchedValue>& fetched) {
      // Whose direct connection is being made, or has just broken, tries again.
      if (fetched.ok() && direct && IsBeyondGrpc(*fetched, kMostTensorBytes)) {
        return reactor->Finish(ToGrpc(absl::UnavailableError(
            "a value that only a direct connection takes, and this is none")));
      }
      if (fetched.ok()) *reply = EncodeFetched(*fetched);
      reactor->Finish(ToGrpc(fetched.status()));
    };
    if (!decoded.ok()) return replies.Add<FetchedValue>(std::move(done), decoded);
    space.OnFetch(fetch, time, replies, std::move(done));
  });
}

}  // namespace parley
