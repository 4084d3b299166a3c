#include "client/direct_shard_client.h"

#include <string>
#include <utility>
#include <vector>

#include "common/direct/frame.h"

namespace parley {
namespace {

// Slices whose bytes stay where they are until they are sent: copies where nobody owns them.
std::vector<TensorSlice> Owned(const std::vector<TensorSlice>& slices) {
  std::vector<TensorSlice> owned = slices;
  for (TensorSlice& slice : owned) {
    slice.loan.reset();
    slice.segment.reset();
    if (slice.owner != nullptr) continue;
    const auto copy = std::make_shared<std::string>(slice.bytes.size(), '\0');
    slice.bytes.CopyTo(reinterpret_cast<std::byte*>(copy->data()));
    slice.bytes = std::string_view(*copy);
    slice.owner = copy;
  }
  return owned;
}

// What comes back, as `done` of the method wants it. Kept as shared until the call has begun, so
// that it can be given back.
template <class Reply>
Done<DirectLink::Reply> Parsing(std::shared_ptr<Done<Reply>> done) {
  return [done = std::move(done)](const absl::StatusOr<DirectLink::Reply>& came) {
    if (!came.ok()) return (*done)(came.status());
    Reply reply;
    if (!reply.ParseFromString(came->message)) {
      return (*done)(absl::InternalError("what came is no answer of a shard's"));
    }
    (*done)(std::move(reply));
  };
}

}  // namespace

void DirectShardClient::PushTensors(const TensorPush& push, absl::Time deadline,
                                    Done<PushReply> done) {
  const auto kept = std::make_shared<Done<PushReply>>(std::move(done));
  Done<DirectLink::Reply> answer = Parsing(kept);
  if (link_->ready() && link_->Call("Push", push.head, Owned(push.slices), deadline, answer)) {
    return;
  }
  link_->Open();
  ++*remote_pushes_;
  remote()->PushTensors(push, deadline,
                        [open = remote_pushes_, kept](absl::StatusOr<PushReply> reply) {
                          --*open;
                          (*kept)(std::move(reply));
                        });
}

void DirectShardClient::Complete(const CompleteRequest& request, absl::Time deadline,
                                 Done<CompleteReply> done) {
  const auto kept = std::make_shared<Done<CompleteReply>>(std::move(done));
  Done<DirectLink::Reply> answer = Parsing(kept);
  if (link_->Call("Complete", request, {}, deadline, answer)) return;
  remote()->Complete(request, deadline, std::move(*kept));
}

void DirectShardClient::PullTensors(const PullRequest& request, absl::Time deadline,
                                    Done<TensorPull> done) {
  const auto kept = std::make_shared<Done<TensorPull>>(std::move(done));
  Done<DirectLink::Reply> answer = [kept](absl::StatusOr<DirectLink::Reply> came) {
    if (!came.ok()) return (*kept)(came.status());
    TensorPull pulled;
    if (!pulled.head.ParseFromString(came->message) || pulled.head.slices_size() != 0) {
      return (*kept)(absl::InternalError("what came is no PullReply"));
    }
    pulled.slices = std::move(came->slices);
    (*kept)(std::move(pulled));
  };
  // What a direct frame cannot carry back is not asked for over one.
  const bool fits = static_cast<size_t>(request.slices_size()) <= kMostSlices;
  if (fits && link_->Call("Pull", request, {}, deadline, answer)) return;
  remote()->PullTensors(request, deadline, std::move(*kept));
}

}  // namespace parley
