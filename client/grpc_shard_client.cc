#include "client/grpc_shard_client.h"

#include <grpcpp/channel.h>

#include <utility>

#include "client/grpc_call.h"
#include "common/rpc/channel.h"
#include "proto/parameter_shard.grpc.pb.h"

namespace parley {
namespace {

class GrpcShardClient final : public ShardClient {
 public:
  GrpcShardClient(std::string address, std::shared_ptr<OpenCalls> calls)
      : address_(std::move(address)),
        calls_(std::move(calls)),
        stub_(ParameterShard::NewStub(MakeChannel(address_))) {}

  void Initialize(const InitializeRequest& request, absl::Time deadline,
                  Done<InitializeReply> done) override {
    Start<InitializeRequest, InitializeReply>(&Stub::Initialize, request, deadline,
                                              std::move(done));
  }
  void Push(const PushRequest& request, absl::Time deadline, Done<PushReply> done) override {
    Start<PushRequest, PushReply>(&Stub::Push, request, deadline, std::move(done));
  }
  void Complete(const CompleteRequest& request, absl::Time deadline,
                Done<CompleteReply> done) override {
    Start<CompleteRequest, CompleteReply>(&Stub::Complete, request, deadline, std::move(done));
  }
  void Close(const CloseRequest& request, absl::Time deadline, Done<CloseReply> done) override {
    Start<CloseRequest, CloseReply>(&Stub::Close, request, deadline, std::move(done));
  }
  void Decide(const DecideRequest& request, absl::Time deadline, Done<DecideReply> done) override {
    Start<DecideRequest, DecideReply>(&Stub::Decide, request, deadline, std::move(done));
  }
  void Pull(const PullRequest& request, absl::Time deadline, Done<PullReply> done) override {
    Start<PullRequest, PullReply>(&Stub::Pull, request, deadline, std::move(done));
  }
  void WhyFailed(const WhyFailedRequest& request, absl::Time deadline,
                 Done<WhyFailedReply> done) override {
    Start<WhyFailedRequest, WhyFailedReply>(&Stub::WhyFailed, request, deadline, std::move(done));
  }

 private:
  using Stub = ParameterShard::StubInterface::async_interface;

  template <class Request, class Reply>
  void Start(GrpcMethod<Stub, Request, Reply> method, const Request& request, absl::Time deadline,
             Done<Reply> done) {
    StartGrpcCall(calls_, stub_->async(), method, address_, request, deadline, std::move(done));
  }

  const std::string address_;
  const std::shared_ptr<OpenCalls> calls_;
  const std::unique_ptr<ParameterShard::StubInterface> stub_;
};

}  // namespace

std::shared_ptr<ShardClient> MakeGrpcShardClient(std::string address,
                                                 std::shared_ptr<OpenCalls> calls) {
  return std::make_shared<GrpcShardClient>(std::move(address), std::move(calls));
}

}  // namespace parley
