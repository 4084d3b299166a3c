#ifndef PARLEY_CLIENT_REDUCE_REDUCER_H_
#define PARLEY_CLIENT_REDUCE_REDUCER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/types.pb.h"

namespace parley {

// Adds up the gradients of the ranks of a node group, and hands round what each of them has pulled
// (docs/node_groups.md). A reduce-scatter of one tensor after the other, each as soon as all ranks
// have its gradient: each range of a tensor has a rank that owns it; when the tensor is reduced,
// the sum of that range lies in the owner's gradient memory, over its own gradient, and the owner
// pushes it to the shards. And an all-gather of the same ranges' values, each as soon as its owner
// has it.
//
//   Form -> { Open -> Offer... -> Close -> done() -> Share..., Take... } ... -> Abort -> Form ...
//
// The sum is that of each rank's gradient times its weight (rounded to the tensor's type), in
// float32 and, where an implementation says that it is ordered, in the order of ranks: then it is
// bitwise what a shard makes of the contributions of single workers. Ranks without a gradient are
// left out.
//
// Memory. Gradients belong to the session, which made the reducer and outlives it. Between Offer
// and the end of the step (the next Open, or Abort's return) the reducer and the other ranks read a
// gradient, and the reducer writes the ranges of it that this rank owns. The caller must not call
// Open before all ranks have ended the step, or one of the two sides has aborted; a verdict that
// decides the step says so, since each rank completes it after it has read what it needs. An
// implementation finds out where that is not so, and reports it rather than a mixture.
//
// Values. A rank that needs a range which is not its own asks Take until it is there, or asks the
// shards itself: the all-gather saves bytes, and nothing depends on it. Values of one version are
// shared once in a composition, and those of another one only when all ranks have what they need of
// the former: their Complete says so.
//
// Threads. Form, Open, Close, Abort, Missing, Share, Withhold, Take and Watch are the training
// thread's. Offer is called by the threads of backward, and does not wait. The listener is called
// on a thread of the reducer's, which holds none of its locks that the caller's methods could want
// but those of Open and Abort.
//
// Nothing here waits for another process: the caller waits for done(), until its own deadline or
// until it hears that the composition has changed, and Abort ends what is under way. Another rank
// that does not come is therefore no error here; Missing says which it is.
//
// Gradients that GPUs add up among themselves come to the session summed already: GivenSums.
// //tests/contract:reducer_contract_test holds both to this.
class Reducer {
 public:
  // A range of a tensor's bytes, and who adds it up.
  struct Range {
    size_t begin = 0;
    size_t bytes = 0;
    uint32_t rank = 0;
  };

  // A composition: the ranks that are a node group until one of them has another process.
  struct Group {
    std::string job;
    uint64_t job_epoch = 0;
    uint32_t contributor = 0;
    uint64_t composition = 0;
    uint32_t rank = 0;            // of this process
    std::vector<Member> members;  // by rank
    // By tensor; a tensor without any is not reduced, and neither offered nor waited for.
    std::vector<std::vector<Range>> ranges;
    // Of what is handed round, by slice: bytes, and the owner.
    std::vector<std::pair<uint64_t, uint32_t>> values;
    // Whether it is still the one that the coordinator has told of last: known before the session's
    // verbs say so. From any thread, also when the session has gone. Empty: it is.
    std::function<bool()> stands;
  };

  // Of one range at one version. slice: a number of the range's, as in the view.
  struct Values {
    uint32_t slice = 0;
    uint32_t rank = 0;  // the owner
    uint64_t version = 0;
    uint64_t bytes = 0;
  };

  class Listener {
   public:
    virtual ~Listener() = default;
    // Once for each tensor and step. any: some rank has a gradient of it, and this rank's ranges
    // have the sum; else nothing was written.
    virtual void OnReduced(size_t tensor, bool any) = 0;
    // After the last OnReduced of a step: done() is true.
    virtual void OnAllReduced() = 0;
    // The rank that Watch has named may have shared something, or is not to be waited for any more.
    virtual void OnShared() = 0;
    // What the other ranks give cannot be used, and this composition reduces nothing any more.
    // Aborted: one of them has given up the step, of which the coordinator will tell. Internal: it
    // is none that runs this program.
    virtual void OnBroken(const absl::Status& why) = 0;
  };

  virtual ~Reducer() = default;

  // Leaves the former composition, and begins to find the other ranks of this one. `listener` must
  // outlive the next Abort. FailedPrecondition, Unavailable or ResourceExhausted where this process
  // cannot be reached by others, with what to do.
  virtual absl::Status Form(Group group, Listener* listener) = 0;

  // A step begins, in which this rank's gradients have this weight; they may be written from here
  // on. The former step is over.
  virtual void Open(uint64_t step, double weight) = 0;
  // This rank's gradient of the tensor is complete. Once a step; any thread.
  virtual void Offer(size_t tensor) = 0;
  // Those not offered have none in this step. May be repeated.
  virtual void Close() = 0;
  // Whether all tensors are reduced, and the listener has been told. Any thread.
  virtual bool done() const = 0;

  // Whom the reducer waits for now, and what for: "rank 2 (worker 6 at HOST:PORT, pid P) has not
  // ..."; empty: for nobody.
  virtual std::string Missing() const = 0;

  // This rank has the values of a range of its own at this version: the others may copy them.
  virtual void Share(const Values& values, absl::Span<const std::byte> bytes) = 0;
  // The others are to ask the shards for them.
  virtual void Withhold(const Values& values) = 0;
  enum class Taken { kPending, kTaken, kWithheld };
  // Copies what the owner has shared. kPending: it has not yet; kWithheld: it never will, this
  // composition hands nothing round (any more), or it takes longer than to ask the shards.
  virtual Taken Take(const Values& values, absl::Span<std::byte> to) = 0;
  // OnShared is called whenever this rank may have shared something, until the next call.
  virtual void Watch(std::optional<uint32_t> rank) = 0;

  // Ends the composition, wherever it is. When it returns no thread of the reducer reads or writes
  // gradients or calls the listener, and no other rank takes what it has not taken whole.
  virtual void Abort() = 0;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_REDUCE_REDUCER_H_
