#include "client/grpc_shard_client.h"

#include <utility>
#include <vector>

#include "client/grpc_peer.h"
#include "common/rpc/tensor_wire.h"
#include "proto/parameter_shard.grpc.pb.h"

namespace parley {
namespace {

constexpr char kPushMethod[] = "/parley.ParameterShard/Push";
constexpr char kPullMethod[] = "/parley.ParameterShard/Pull";
constexpr char kFindMethod[] = "/parley.ParameterShard/FindDirect";

class GrpcShardClient final : public ShardClient {
 public:
  GrpcShardClient(std::string address, SharedCredentials credentials,
                  std::shared_ptr<OpenCalls> calls)
      : peer_(std::move(address), std::move(credentials), std::move(calls)) {}

  bool JoinsCalls() const override { return true; }

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
  void PushTensors(const TensorPush& push, absl::Time deadline, Done<PushReply> done) override {
    peer_.CallBytes(kPushMethod, EncodeTensors(push.head, kPushSlicesField, push.slices), deadline,
                    ParsingBytes(std::move(done)));
  }
  void PullTensors(const PullRequest& request, absl::Time deadline,
                   Done<TensorPull> done) override {
    peer_.CallBytes(kPullMethod, EncodeMessage(request), deadline,
                    [done = std::move(done)](absl::StatusOr<grpc::ByteBuffer> bytes) {
                      if (!bytes.ok()) return done(bytes.status());
                      // The tensors stay where gRPC has received them, until they are taken.
                      const auto here = std::make_shared<grpc::ByteBuffer>(*std::move(bytes));
                      TensorPull pulled;
                      const absl::Status status =
                          DecodeTensors(*here, kPullSlicesField, pulled.head, pulled.slices);
                      if (!status.ok()) return done(status);
                      for (TensorSlice& slice : pulled.slices) slice.owner = here;
                      done(std::move(pulled));
                    });
  }
  void FindDirect(absl::Time deadline, std::shared_ptr<std::string> peer,
                  Done<FindDirectReply> done) const {
    peer_.CallBytes(kFindMethod, EncodeMessage(FindDirectRequest()), deadline,
                    ParsingBytes(std::move(done)), std::move(peer));
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

GrpcShard MakeGrpcShardClient(std::string address, SharedCredentials credentials,
                              std::shared_ptr<OpenCalls> calls) {
  const auto client = std::make_shared<GrpcShardClient>(std::move(address), std::move(credentials),
                                                        std::move(calls));
  return {client, [client](absl::Time deadline, std::shared_ptr<std::string> peer,
                           Done<FindDirectReply> done) {
            client->FindDirect(deadline, std::move(peer), std::move(done));
          }};
}

}  // namespace parley
