#include "client/local_connector.h"

#include <atomic>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/forwarding_shard.h"
#include "client/local_link.h"
#include "common/shared_memory/segment_heap.h"

namespace parley {
namespace {

// The shard through its link, where that is up.
class LocalShardClient final : public ForwardingShard {
 public:
  LocalShardClient(std::shared_ptr<ShardClient> remote, std::shared_ptr<LocalLink> link)
      : ForwardingShard(std::move(remote)), link_(std::move(link)) {}
  ~LocalShardClient() override { link_->Close(); }

  bool ReadsLentMemory() const override { return link_->ready(); }
  bool KeepsOrder() const override { return link_->ready() && *remote_pushes_ == 0; }
  bool JoinsCalls() const override { return !link_->ready() && remote()->JoinsCalls(); }

  void Complete(const CompleteRequest& request, absl::Time deadline,
                Done<CompleteReply> done) override {
    // A verdict that is too large for the link.
    Done<CompleteReply> local = [remote = remote(), request, deadline,
                                 done](absl::StatusOr<CompleteReply> reply) {
      if (absl::IsUnimplemented(reply.status())) return remote->Complete(request, deadline, done);
      done(std::move(reply));
    };
    if (link_->Complete(request, deadline, local)) return;
    remote()->Complete(request, deadline, std::move(done));
  }
  void PushTensors(const TensorPush& push, absl::Time deadline, Done<PushReply> done) override {
    if (link_->Push(push, deadline, done)) return;
    ++*remote_pushes_;
    remote()->PushTensors(push, deadline,
                          [open = remote_pushes_, done](absl::StatusOr<PushReply> reply) {
                            --*open;
                            done(std::move(reply));
                          });
  }
  void PullTensors(const PullRequest& request, absl::Time deadline,
                   Done<TensorPull> done) override {
    Done<TensorPull> local = [remote = remote(), request, deadline,
                              done](absl::StatusOr<TensorPull> pulled) {
      // Some of the values lie where the shard cannot show them.
      if (absl::IsUnimplemented(pulled.status())) {
        return remote->PullTensors(request, deadline, done);
      }
      done(std::move(pulled));
    };
    if (link_->Pull(request, deadline, local)) return;
    remote()->PullTensors(request, deadline, std::move(done));
  }

 private:
  const std::shared_ptr<LocalLink> link_;
  // That go by gRPC and have no answer; shared with these.
  const std::shared_ptr<std::atomic<int>> remote_pushes_ = std::make_shared<std::atomic<int>>(0);
};

class LocalConnector final : public Connector, public Visitors {
 public:
  explicit LocalConnector(std::unique_ptr<Connector> remote) : remote_(std::move(remote)) {}
  ~LocalConnector() override {
    const std::shared_ptr<const Links> links = all();
    for (const auto& link : *links) link->Close();
    for (const auto& link : *links) link->Join();  // their last answers may still make calls
    remote_.reset();
  }

  std::shared_ptr<CoordinatorClient> ConnectCoordinator(const std::string& address) override {
    return remote_->ConnectCoordinator(address);
  }
  std::shared_ptr<ShardClient> ConnectShard(const std::string& address) override {
    std::shared_ptr<ShardClient> remote = remote_->ConnectShard(address);
    absl::StatusOr<std::shared_ptr<LocalLink>> link = LocalLink::Open(address, &heap_);
    if (!link.ok()) return remote;
    absl::MutexLock lock(&mu_);
    const auto links = std::make_shared<Links>();
    for (const auto& one : *links_) {
      if (one->ended()) {
        one->Join();
      } else {
        links->push_back(one);
      }
    }
    links->push_back(*link);
    links_ = links;
    return std::make_shared<LocalShardClient>(std::move(remote), *std::move(link));
  }
  MemorySource* memory() override { return &heap_; }
  Visitors* visitors() override { return this; }

  bool Visit() override {
    const std::shared_ptr<const Links> links = all();
    bool any = false;
    for (const auto& link : *links) any |= link->Visit();
    return any;
  }
  void Leave() override {
    const std::shared_ptr<const Links> links = all();
    for (const auto& link : *links) link->Leave();
  }

 private:
  using Links = std::vector<std::shared_ptr<LocalLink>>;

  std::shared_ptr<const Links> all() {
    absl::MutexLock lock(&mu_);
    return links_;
  }

  std::unique_ptr<Connector> remote_;
  // Each tensor arena has a segment of its own, which can be renewed.
  SegmentHeap heap_{0};
  absl::Mutex mu_;
  // Another list for each change, since answers that a visit runs may connect.
  std::shared_ptr<const Links> links_ ABSL_GUARDED_BY(mu_) = std::make_shared<Links>();
};

}  // namespace

std::unique_ptr<Connector> MakeLocalConnector(std::unique_ptr<Connector> remote) {
  return std::make_unique<LocalConnector>(std::move(remote));
}

}  // namespace parley
