#include "server/parameter_shard/in_process.h"

#include <utility>

namespace parley {
namespace {

class InProcessShardClient final : public ShardClient {
 public:
  InProcessShardClient(LockedShard* shard, std::function<absl::Time()> clock)
      : shard_(shard), clock_(std::move(clock)) {}

  void Initialize(const InitializeRequest& request, absl::Time deadline,
                  Done<InitializeReply> done) override {
    shard_->Initialize(request, {clock_(), deadline}, std::move(done));
  }
  void Push(const PushRequest& request, absl::Time deadline, Done<PushReply> done) override {
    shard_->Push(request, {clock_(), deadline}, std::move(done));
  }
  void Complete(const CompleteRequest& request, absl::Time deadline,
                Done<CompleteReply> done) override {
    shard_->Complete(request, {clock_(), deadline}, std::move(done));
  }
  void Enter(const EnterRequest& request, absl::Time deadline, Done<EnterReply> done) override {
    shard_->Enter(request, {clock_(), deadline}, std::move(done));
  }
  void Close(const CloseRequest& request, absl::Time deadline, Done<CloseReply> done) override {
    shard_->Close(request, {clock_(), deadline}, std::move(done));
  }
  void Decide(const DecideRequest& request, absl::Time deadline, Done<DecideReply> done) override {
    shard_->Decide(request, {clock_(), deadline}, std::move(done));
  }
  void Advance(const AdvanceRequest& request, absl::Time deadline,
               Done<AdvanceReply> done) override {
    shard_->Advance(request, {clock_(), deadline}, std::move(done));
  }
  void Pull(const PullRequest& request, absl::Time deadline, Done<PullReply> done) override {
    shard_->Pull(request, {clock_(), deadline},
                 [done = std::move(done)](absl::StatusOr<PulledVersion> pulled) {
                   if (!pulled.ok()) return done(pulled.status());
                   done(ToReply(*pulled));
                 });
  }
  void PushTensors(const TensorPush& push, absl::Time deadline, Done<PushReply> done) override {
    shard_->Push(push.head, push.slices, {clock_(), deadline}, std::move(done));
  }
  void PullTensors(const PullRequest& request, absl::Time deadline,
                   Done<TensorPull> done) override {
    shard_->Pull(request, {clock_(), deadline},
                 [done = std::move(done)](absl::StatusOr<PulledVersion> pulled) {
                   if (!pulled.ok()) return done(pulled.status());
                   done(TensorPull{HeadOf(*pulled), SlicesOf(*pulled)});
                 });
  }
  void WhyFailed(const WhyFailedRequest& request, absl::Time deadline,
                 Done<WhyFailedReply> done) override {
    shard_->WhyFailed(request, {clock_(), deadline}, std::move(done));
  }

 private:
  LockedShard* const shard_;
  const std::function<absl::Time()> clock_;
};

}  // namespace

std::shared_ptr<ShardClient> MakeInProcessShardClient(LockedShard* shard,
                                                      std::function<absl::Time()> clock) {
  return std::make_shared<InProcessShardClient>(shard, std::move(clock));
}

}  // namespace parley
