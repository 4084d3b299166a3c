#ifndef PARLEY_CLIENT_SHARD_CLIENT_H_
#define PARLEY_CLIENT_SHARD_CLIENT_H_

#include <vector>

#include "absl/time/time.h"
#include "common/replies.h"
#include "common/tensor_slice.h"
#include "proto/parameter_shard.pb.h"

namespace parley {

// A PushRequest without its slices, and these; their owners keep the bytes until the call, and what
// the transport still does with it, has ended.
struct TensorPush {
  PushRequest head;
  std::vector<TensorSlice> slices;
};

// The answer to a Pull without its slices, and these. Owners keep the bytes.
struct TensorPull {
  PullReply head;
  std::vector<TensorSlice> slices;
};

// One parameter shard as workers and other shards see it; proto/parameter_shard.proto says what
// each call does and which codes it returns. One attempt each: retrying is the caller's
// (client/retry.h). Thread-safe. `done` runs on a thread of the implementation and must not block.
class ShardClient {
 public:
  virtual ~ShardClient() = default;

  virtual void Initialize(const InitializeRequest&, absl::Time deadline, Done<InitializeReply>) = 0;
  virtual void Push(const PushRequest&, absl::Time deadline, Done<PushReply>) = 0;
  virtual void Complete(const CompleteRequest&, absl::Time deadline, Done<CompleteReply>) = 0;
  virtual void Enter(const EnterRequest&, absl::Time deadline, Done<EnterReply>) = 0;
  virtual void Close(const CloseRequest&, absl::Time deadline, Done<CloseReply>) = 0;
  virtual void Decide(const DecideRequest&, absl::Time deadline, Done<DecideReply>) = 0;
  virtual void Advance(const AdvanceRequest&, absl::Time deadline, Done<AdvanceReply>) = 0;
  virtual void Pull(const PullRequest&, absl::Time deadline, Done<PullReply>) = 0;
  // Push and Pull without copies of the tensors where the implementation can do without; else they
  // are those, with copies.
  virtual void PushTensors(const TensorPush& push, absl::Time deadline, Done<PushReply> done);
  virtual void PullTensors(const PullRequest& request, absl::Time deadline, Done<TensorPull> done);
  // Whether it reads what a push lends (TensorSlice::loan) where it lies, perhaps until the attempt
  // is over.
  virtual bool ReadsLentMemory() const { return false; }
  // Whether a Complete that is called now cannot overtake the pushes that were called before it,
  // unless an attempt of one of these fails.
  virtual bool KeepsOrder() const { return false; }
  // Whether a call costs so much that what is small of a step should travel with its Complete
  // (CompleteRequest.pushed and pulled).
  virtual bool JoinsCalls() const { return false; }
  // What was called before may be given up, and the tensors of its pushes written again when this
  // returns: what has not been sent yet is not sent any more (these attempts fail), where it might
  // else be followed by a Complete that was called before, too.
  virtual void DropUnsent() {}
  virtual void WhyFailed(const WhyFailedRequest&, absl::Time deadline, Done<WhyFailedReply>) = 0;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_SHARD_CLIENT_H_
