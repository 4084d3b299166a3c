#include "client/shard_client.h"

#include <memory>
#include <utility>

namespace parley {

void ShardClient::PushTensors(const TensorPush& push, absl::Time deadline, Done<PushReply> done) {
  PushRequest request = push.head;
  for (const TensorSlice& slice : push.slices) CopyTo(slice, *request.add_slices());
  Push(request, deadline, std::move(done));
}

void ShardClient::PullTensors(const PullRequest& request, absl::Time deadline,
                              Done<TensorPull> done) {
  Pull(request, deadline, [done = std::move(done)](absl::StatusOr<PullReply> reply) {
    if (!reply.ok()) return done(reply.status());
    const auto message = std::make_shared<const PullReply>(*std::move(reply));
    TensorPull pulled;
    pulled.head.set_version(message->version());
    *pulled.head.mutable_updates() = message->updates();
    pulled.slices = ViewsOf(message->slices());
    for (TensorSlice& slice : pulled.slices) slice.owner = message;
    done(std::move(pulled));
  });
}

}  // namespace parley
