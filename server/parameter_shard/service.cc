#include "server/parameter_shard/service.h"

#include <grpcpp/impl/codegen/proto_utils.h>

#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/rpc/reply.h"
#include "common/rpc/status.h"
#include "common/rpc/tensor_wire.h"
#include "server/parameter_shard/parked_time.h"

namespace parley {
namespace {

CallTime ParkedTimeOf(const grpc::CallbackServerContext& context) {
  CallTime time = TimeOf(context);
  time.deadline = time.now + Parked(time.deadline - time.now);
  return time;
}

}  // namespace

void ShardService::WhenFree(std::function<void()> call) {
  // Behind what waits already: nobody is overtaken for ever.
  if (waiting_ == 0 && !shard_->busy()) return call();
  ++waiting_;
  thread_.Run([this, call = std::move(call)] {
    call();
    --waiting_;
  });
}

grpc::ServerUnaryReactor* ShardService::Initialize(grpc::CallbackServerContext* context,
                                                   const InitializeRequest* request,
                                                   InitializeReply* reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  WhenFree([this, request, time = TimeOf(*context), done = Answer(reactor, reply)] {
    shard_->Initialize(*request, time, done);
  });
  return reactor;
}

grpc::ServerUnaryReactor* ShardService::Push(grpc::CallbackServerContext* context,
                                             const grpc::ByteBuffer* request,
                                             grpc::ByteBuffer* reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  PushRequest head;
  std::vector<TensorSlice> slices;
  if (const absl::Status status = DecodeTensors(*request, kPushSlicesField, head, slices);
      !status.ok()) {
    reactor->Finish(ToGrpc(status));
    return reactor;
  }
  WhenFree([this, reactor, reply, head = std::move(head), slices = std::move(slices),
            time = TimeOf(*context)] {
    shard_->Push(head, slices, time, [reactor, reply](const absl::StatusOr<PushReply>& answer) {
      if (answer.ok()) *reply = EncodeMessage(*answer);
      reactor->Finish(ToGrpc(answer.status()));
    });
  });
  return reactor;
}

grpc::ServerUnaryReactor* ShardService::Complete(grpc::CallbackServerContext* context,
                                                 const CompleteRequest* request,
                                                 CompleteReply* reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  WhenFree([this, request, time = ParkedTimeOf(*context), done = Answer(reactor, reply)] {
    shard_->Complete(*request, time, done);
  });
  return reactor;
}

grpc::ServerUnaryReactor* ShardService::Enter(grpc::CallbackServerContext* context,
                                              const EnterRequest* request, EnterReply* reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  WhenFree([this, request, time = ParkedTimeOf(*context), done = Answer(reactor, reply)] {
    shard_->Enter(*request, time, done);
  });
  return reactor;
}

grpc::ServerUnaryReactor* ShardService::Close(grpc::CallbackServerContext* context,
                                              const CloseRequest* request, CloseReply* reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  WhenFree([this, request, time = TimeOf(*context), done = Answer(reactor, reply)] {
    shard_->Close(*request, time, done);
  });
  return reactor;
}

grpc::ServerUnaryReactor* ShardService::Decide(grpc::CallbackServerContext* context,
                                               const DecideRequest* request, DecideReply* reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  WhenFree([this, request, time = TimeOf(*context), done = Answer(reactor, reply)] {
    shard_->Decide(*request, time, done);
  });
  return reactor;
}

grpc::ServerUnaryReactor* ShardService::Advance(grpc::CallbackServerContext* context,
                                                const AdvanceRequest* request,
                                                AdvanceReply* reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  WhenFree([this, request, time = TimeOf(*context), done = Answer(reactor, reply)] {
    shard_->Advance(*request, time, done);
  });
  return reactor;
}

grpc::ServerUnaryReactor* ShardService::Pull(grpc::CallbackServerContext* context,
                                             const grpc::ByteBuffer* request,
                                             grpc::ByteBuffer* reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  PullRequest pull;
  grpc::ByteBuffer bytes = *request;  // shares the memory; parsing consumes it
  if (const grpc::Status status =
          grpc::GenericDeserialize<grpc::ProtoBufferReader, PullRequest>(&bytes, &pull);
      !status.ok()) {
    reactor->Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "not a PullRequest"));
    return reactor;
  }
  WhenFree([this, reactor, reply, pull = std::move(pull), time = ParkedTimeOf(*context)] {
    shard_->Pull(pull, time, [reactor, reply](const absl::StatusOr<PulledVersion>& pulled) {
      if (pulled.ok()) {
        *reply = EncodeTensors(HeadOf(*pulled), kPullSlicesField, SlicesOf(*pulled));
      }
      reactor->Finish(ToGrpc(pulled.status()));
    });
  });
  return reactor;
}

grpc::ServerUnaryReactor* ShardService::FindDirect(grpc::CallbackServerContext* context,
                                                   const FindDirectRequest* /*request*/,
                                                   FindDirectReply* reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  *reply = direct_;
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* ShardService::WhyFailed(grpc::CallbackServerContext* context,
                                                  const WhyFailedRequest* request,
                                                  WhyFailedReply* reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  WhenFree([this, request, time = ParkedTimeOf(*context), done = Answer(reactor, reply)] {
    shard_->WhyFailed(*request, time, done);
  });
  return reactor;
}

}  // namespace parley
