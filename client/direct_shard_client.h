#ifndef PARLEY_CLIENT_DIRECT_SHARD_CLIENT_H_
#define PARLEY_CLIENT_DIRECT_SHARD_CLIENT_H_

#include <atomic>
#include <memory>

#include "client/direct_link.h"
#include "client/forwarding_shard.h"

namespace parley {

// A parameter shard whose Push, Complete and Pull go over a direct connection where one stands, and
// by `remote` where not, as all other calls do.
class DirectShardClient final : public ForwardingShard {
 public:
  DirectShardClient(std::shared_ptr<ShardClient> remote, std::shared_ptr<DirectLink> link)
      : ForwardingShard(std::move(remote)), link_(std::move(link)) {}
  ~DirectShardClient() override { link_->Close(); }

  void PushTensors(const TensorPush& push, absl::Time deadline, Done<PushReply> done) override;
  void Complete(const CompleteRequest& request, absl::Time deadline,
                Done<CompleteReply> done) override;
  void PullTensors(const PullRequest& request, absl::Time deadline, Done<TensorPull> done) override;
  void DropUnsent() override { link_->DropUnsent(); }
  bool KeepsOrder() const override { return link_->ready() && *remote_pushes_ == 0; }

 private:
  const std::shared_ptr<DirectLink> link_;
  // That go by `remote` and have no answer; shared with these.
  const std::shared_ptr<std::atomic<int>> remote_pushes_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace parley

#endif  // PARLEY_CLIENT_DIRECT_SHARD_CLIENT_H_
