#ifndef PARLEY_CLIENT_FORWARDING_SHARD_H_
#define PARLEY_CLIENT_FORWARDING_SHARD_H_

#include <memory>
#include <utility>

#include "client/shard_client.h"

namespace parley {

// A ShardClient all of whose calls another one makes; who derives overrides those that go another
// way.
class ForwardingShard : public ShardClient {
 public:
  explicit ForwardingShard(std::shared_ptr<ShardClient> remote) : remote_(std::move(remote)) {}

#define PARLEY_FORWARD(Method)                                                               \
  void Method(const Method##Request& request, absl::Time deadline, Done<Method##Reply> done) \
      override {                                                                             \
    remote_->Method(request, deadline, std::move(done));                                     \
  }
  PARLEY_FORWARD(Initialize)
  PARLEY_FORWARD(Push)
  PARLEY_FORWARD(Complete)
  PARLEY_FORWARD(Enter)
  PARLEY_FORWARD(Close)
  PARLEY_FORWARD(Decide)
  PARLEY_FORWARD(Advance)
  PARLEY_FORWARD(Pull)
  PARLEY_FORWARD(WhyFailed)
#undef PARLEY_FORWARD

  void PushTensors(const TensorPush& push, absl::Time deadline, Done<PushReply> done) override {
    remote_->PushTensors(push, deadline, std::move(done));
  }
  void PullTensors(const PullRequest& request, absl::Time deadline,
                   Done<TensorPull> done) override {
    remote_->PullTensors(request, deadline, std::move(done));
  }
  bool ReadsLentMemory() const override { return remote_->ReadsLentMemory(); }
  bool KeepsOrder() const override { return remote_->KeepsOrder(); }
  void DropUnsent() override { remote_->DropUnsent(); }
  bool JoinsCalls() const override { return remote_->JoinsCalls(); }

 protected:
  const std::shared_ptr<ShardClient>& remote() const { return remote_; }

 private:
  const std::shared_ptr<ShardClient> remote_;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_FORWARDING_SHARD_H_
