#include "client/grpc_shard_client.h"

#include <utility>

#include "client/grpc_peer.h"
#include "proto/parameter_shard.grpc.pb.h"

namespace parley {
namespace {

class GrpcShardClient final : public ShardClient {
 public:
  GrpcShardClient(std::string address, std::shared_ptr<OpenCalls> calls)
      : peer_(std::move(address), std::move(calls)) {}

  void Initialize(const InitializeRequest& request, absl::Time deadline,
                  Done<InitializeReply> done) override {
    peer_.Call(&Stub::Initialize, request, deadline, std::move(done));
  }
  void Push(const PushRequest& request, absl::Time deadline, Done<PushReply> done) override {
    peer_.Call(&Stub::Push, request, deadline, std::move(done));
  }
  void Complete(const CompleteRequest& request, absl::Time deadline,
                Done<CompleteReply> done) override {
    peer_.Call(&Stub::Complete, request, deadline, std::move(done));
  }
  void Enter(const EnterRequest& request, absl::Time deadline, Done<EnterReply> done) override {
    peer_.Call(&Stub::Enter, request, deadline, std::move(done));
  }
  void Close(const CloseRequest& request, absl::Time deadline, Done<CloseReply> done) override {
    peer_.Call(&Stub::Close, request, deadline, std::move(done));
  }
  void Decide(const DecideRequest& request, absl::Time deadline, Done<DecideReply> done) override {
    peer_.Call(&Stub::Decide, request, deadline, std::move(done));
  }
  void Advance(const AdvanceRequest& request, absl::Time deadline,
               Done<AdvanceReply> done) override {
    peer_.Call(&Stub::Advance, request, deadline, std::move(done));
  }
  void Pull(const PullRequest& request, absl::Time deadline, Done<PullReply> done) override {
    peer_.Call(&Stub::Pull, request, deadline, std::move(done));
  }
  void WhyFailed(const WhyFailedRequest& request, absl::Time deadline,
                 Done<WhyFailedReply> done) override {
    peer_.Call(&Stub::WhyFailed, request, deadline, std::move(done));
  }

 private:
  using Stub = GrpcPeer<ParameterShard>::Stub;

  const GrpcPeer<ParameterShard> peer_;
};

}  // namespace

std::shared_ptr<ShardClient> MakeGrpcShardClient(std::string address,
                                                 std::shared_ptr<OpenCalls> calls) {
  return std::make_shared<GrpcShardClient>(std::move(address), std::move(calls));
}

}  // namespace parley
