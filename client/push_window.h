#ifndef PARLEY_CLIENT_PUSH_WINDOW_H_
#define PARLEY_CLIENT_PUSH_WINDOW_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "client/answer_queue.h"
#include "client/service_calls.h"
#include "client/slice_layout.h"
#include "client/tensor_arena.h"
#include "proto/types.pb.h"

namespace parley {

// Back-pressure: sends the slices of one contributor's tensors to their shards with at most so many
// bytes to each shard that it has not acknowledged. What is beyond waits as an index into the
// caller's gradients, and is encoded and sent as acknowledgements come: a slow shard slows its
// worker, and the worker does not grow. What was added of the gradients must not change until the
// end of the attempt (AllAcknowledged, or Abandon).
//
// Begin, Flush, AllAcknowledged and Abandon are the training thread's; Add and AddUntil are called
// by the threads of backward and do not wait for anybody. Acknowledgements come on the connector's
// threads, which encode what they make room for; they hold this as shared, since they can come
// after all else.
class PushWindow : public std::enable_shared_from_this<PushWindow> {
 public:
  struct Options {
    uint32_t contributor = 0;
    uint64_t composition = 0;  // of its pipeline, if it has one
    // Slices for one shard travel together up to about this.
    size_t group_bytes = 4 << 20;
    // Of pushes that a shard has not acknowledged, for each shard; a slice that is larger travels
    // alone.
    size_t window_bytes = 64 << 20;
    // F16 or BF16: gradients that are F32 go so to shards that do not read them where they lie.
    DataType narrow = DATA_TYPE_UNSPECIFIED;
  };

  // All must outlive the object's last Abandon.
  static std::shared_ptr<PushWindow> Make(const Options& options,
                                          const std::vector<TensorSpec>& tensors,
                                          const SliceLayout& layout, const TensorArena& gradients,
                                          ServiceCalls& calls);

  // Begins an attempt; the former one is over. scale: gradients count times it, buffers do not.
  // seen: in bounded and async, PushRequest.seen of each slice, by id. What is pushed is lent to
  // shards that read it where it lies (TensorSlice::loan).
  void Begin(uint64_t step, uint32_t attempt, double scale, std::vector<uint64_t> seen = {});
  // The tensor's gradient is complete. Small slices wait for others until Flush. nonzero: of the
  // whole tensor, where the caller knows it (Session::PushNonzero).
  void Add(size_t tensor, std::string_view nonzero = {}) {
    AddUntil(tensor, std::numeric_limits<size_t>::max(), nonzero);
  }
  // The first `bytes` bytes of it are: the slices that lie in them, and were not added before.
  void AddUntil(size_t tensor, size_t bytes, std::string_view nonzero = {});
  // Nothing is added any more: what is left goes, as far as there is room.
  void Flush();
  // Of one shard, where nothing is added any more: what is left and not sent, encoded, as part of
  // the caller's own message; none where it is more than so many bytes. Counts as acknowledged.
  std::vector<SliceData> TakeRest(uint32_t shard, size_t most_bytes);
  // Whether all that was added has been acknowledged, or an error() has come. To be looked at after
  // each answer. Of `in_order`, a shard's ordinal, it is enough that all has been sent, where a
  // Complete cannot overtake that (ServiceCalls::KeepsOrder).
  bool AllAcknowledged(std::optional<uint32_t> in_order = std::nullopt) const;
  absl::Status error() const;
  // Flushes, and waits until the shards have answered all; on an error nothing more is sent.
  absl::Status AwaitAcknowledged(const AnswerQueue::Wait& wait,
                                 std::optional<uint32_t> in_order = std::nullopt);
  // Slices of this attempt that the shards have taken, and refused as STALE.
  struct Outcomes {
    uint64_t taken = 0;
    uint64_t refused = 0;
  };
  Outcomes outcomes() const;
  // Shards to which something was lent since the last call: they may read it until they have
  // carried out the step.
  std::vector<uint32_t> TakeBorrowers();
  // Bytes of gradients and buffers that were sent, or lent, since the last call.
  uint64_t TakeSentBytes();
  // Nothing more of this attempt is sent, and no thread of ours reads gradients any more when it
  // returns. gRPC may: what it has not sent yet of this attempt, or of a repetition, then arrives
  // as whatever the gradients are by that time. No shard counts it: an attempt that was given up is
  // never completed, and what was acknowledged before is there by its identity. In bounded and
  // async, where a push counts when it arrives, gRPC gets copies.
  void Abandon();

  // Of messages that the shard has not acknowledged; for tests.
  size_t unacknowledged_bytes(uint32_t shard) const;

 private:
  struct Item {
    size_t tensor = 0;
    const PlacedSlice* placed = nullptr;
    std::string nonzero;  // of the slice, where it is known
    size_t bytes = 0;     // that it counts for in a message (BytesOf)
  };
  struct Lane {  // to one shard
    std::deque<Item> waiting;
    size_t waiting_bytes = 0;  // of whole slices
    size_t open_bytes = 0;     // sent, not acknowledged
    bool pumped = false;       // a thread is in Pump
    bool borrows = false;      // something was lent
    uint64_t sent = 0;         // messages of this attempt
  };
  // What answers touch, on the training thread.
  struct Acks {
    std::vector<uint64_t> answered;  // by shard
    Outcomes outcomes;
    absl::Status error;  // the first one
  };
  struct Attempt {
    uint64_t step = 0;
    uint32_t attempt = 0;
    double scale = 0;
    std::shared_ptr<const std::vector<uint64_t>> seen;
    std::shared_ptr<Acks> acks = std::make_shared<Acks>();
  };

  PushWindow(const Options& options, const std::vector<TensorSpec>& tensors,
             const SliceLayout& layout, const TensorArena& gradients, ServiceCalls& calls);

  // Sends what there is room for; one thread for each shard at a time, so that acknowledgements
  // that come at once do not lead deeper and deeper.
  void Pump(uint32_t shard);
  // The next message, empty where it has to wait. Its bytes count as open from here.
  std::vector<Item> TakeGroup(Lane& lane, size_t& bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What becomes of a gradient on its way.
  enum class Way : uint8_t {
    kSent,      // to a shard that is far: narrowed, where asked for
    kSentNear,  // to a shard on this machine, but in a message
    kLent,      // read where it lies
  };
  std::shared_ptr<TensorPush> Encode(const std::vector<Item>& items, const Attempt& attempt,
                                     Way way);
  TensorSlice EncodeSlice(const Item& item, bool copy, Way way) const;
  // What narrowed or copied slices lie in; used again when it has been sent.
  struct Spare {
    absl::Mutex mu;
    std::vector<std::unique_ptr<std::string>> bytes ABSL_GUARDED_BY(mu);
  };
  std::shared_ptr<std::string> TakeSpare() const;
  // Of a slice, out of the tensor's; empty where that is not known.
  std::string NonzeroOf(size_t tensor, const PlacedSlice& placed, std::string_view nonzero) const;
  // About as many as a shard reads: where it reads them in place, and knows what is zero, the rest.
  size_t BytesOf(size_t tensor, const PlacedSlice& placed, std::string_view nonzero) const;
  bool NobodyPumps() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Constant after construction.
  const Options options_;
  const std::vector<TensorSpec>& tensors_;
  const SliceLayout& layout_;
  const TensorArena& gradients_;
  ServiceCalls& calls_;
  const std::shared_ptr<Spare> spare_ = std::make_shared<Spare>();

  mutable absl::Mutex mu_;
  Attempt attempt_ ABSL_GUARDED_BY(mu_);
  bool flushing_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t sent_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<Lane> lanes_ ABSL_GUARDED_BY(mu_);
  std::vector<size_t> added_ ABSL_GUARDED_BY(mu_);  // by tensor: bytes
};

}  // namespace parley

#endif  // PARLEY_CLIENT_PUSH_WINDOW_H_
