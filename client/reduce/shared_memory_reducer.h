#ifndef PARLEY_CLIENT_REDUCE_SHARED_MEMORY_REDUCER_H_
#define PARLEY_CLIENT_REDUCE_SHARED_MEMORY_REDUCER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/reduce/group_door.h"
#include "client/reduce/group_values.h"
#include "client/reduce/group_words.h"
#include "client/reduce/rank_sum.h"
#include "client/reduce/reducer.h"
#include "client/tensor_arena.h"
#include "proto/types.pb.h"

namespace parley {

// The Reducer of ranks that are processes of one machine: each reads the others' gradients where
// they lie, in shared memory, and adds up what it owns, in the order of ranks
// (docs/node_groups.md).
//
// A thread of a composition's own, from Form to Abort, first finds the other ranks (GroupDoor), and
// then adds up each tensor as soon as the words of all ranks say that it is ready. When it has
// added one up it looks whether the words still say so: if not, what it has is a mixture, and the
// composition is broken. It never writes to another rank's memory, and no two ranks read what one
// of them writes: the ranges that a rank owns only it reads.
//
// Values that ranks hand round are copied twice: by the owner, into memory that the others see
// (group_values.h), and by each of those. The thread calls OnShared.
class SharedMemoryReducer final : public Reducer {
 public:
  // address: host:port by which others know this process. tensors: F32 or F64 where they are
  // reduced. gradients: of all tensors, in memory that lends. Both must outlive it.
  SharedMemoryReducer(std::string address, const std::vector<TensorSpec>& tensors,
                      TensorArena& gradients);
  ~SharedMemoryReducer() override { Abort(); }

  absl::Status Form(Group group, Listener* listener) override;
  void Open(uint64_t step, double weight) override;
  void Offer(size_t tensor) override;
  void Close() override;
  bool done() const override { return open_tensors_ == 0; }
  std::string Missing() const override;
  void Share(const Values& values, absl::Span<const std::byte> bytes) override;
  void Withhold(const Values& values) override;
  Taken Take(const Values& values, absl::Span<std::byte> to) override;
  void Watch(std::optional<uint32_t> rank) override;
  void Abort() override;

 private:
  GroupComposition Composition() const;
  bool Reduces(size_t tensor) const { return !group_.ranges[tensor].empty(); }

  // The composition's thread.
  void Run();
  // Asks those that have not answered yet. Whether all have.
  bool FindPeers();
  absl::Status FindPeer(uint32_t rank, absl::Span<const size_t> bytes);
  // Calls OnShared where there is reason to. heard: as now.
  void TellOfValues(const std::vector<uint32_t>& heard);
  // Adds up what can be. Whether anything was.
  bool ReduceReady();
  // Whether all ranks have the tensor, or have said that they do not.
  bool IsReady(size_t tensor) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Reduce(size_t tensor, bool& any) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Until something may have changed since the bells were `heard`, by rank.
  void Sleep(absl::Span<const uint32_t> heard);
  std::vector<uint32_t> HearBells() const;
  // The rank that is furthest behind: what is missing is most likely its.
  uint32_t Slowest() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  const std::atomic<uint32_t>& BellOf(uint32_t rank) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return peers_[rank] == nullptr ? words_->bell() : peers_[rank]->bell();
  }
  GradientState StateOf(uint32_t rank, size_t tensor) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Break(const absl::Status& why);
  // The composition's thread looks again.
  void Wake();

  // Constant after construction.
  const std::string address_;
  const std::vector<TensorSpec>& tensors_;
  TensorArena& gradients_;

  std::unique_ptr<GroupDoor> door_;  // from the first Form on

  // Constant from Form to Abort.
  Group group_;
  Listener* listener_ = nullptr;
  std::unique_ptr<OwnWords> words_;  // null: there is no composition
  std::unique_ptr<OwnValues> values_;
  std::thread thread_;

  std::atomic<bool> stopping_ = false;
  std::atomic<size_t> open_tensors_ = 0;  // of the open step: not reduced yet
  // What the thread sleeps on.
  std::atomic<const std::atomic<uint32_t>*> sleeps_on_ = nullptr;

  // Held while a tensor is added up and told of, so that Open waits for that.
  mutable absl::Mutex mu_;
  // By rank; null: this process, or not found yet. The thread's to change.
  std::vector<std::unique_ptr<PeerWords>> peers_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<PeerValues>> peer_values_ ABSL_GUARDED_BY(mu_);
  std::optional<uint32_t> watched_ ABSL_GUARDED_BY(mu_);
  absl::Time give_up_ ABSL_GUARDED_BY(mu_);           // waiting for the watched ranks
  bool tell_ ABSL_GUARDED_BY(mu_) = false;            // at once
  std::vector<uint32_t> heard_ ABSL_GUARDED_BY(mu_);  // when it was told last
  uint64_t step_ ABSL_GUARDED_BY(mu_) = 0;            // 0: none is open
  double weight_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<bool> reduced_ ABSL_GUARDED_BY(mu_);  // by tensor
};

}  // namespace parley

#endif  // PARLEY_CLIENT_REDUCE_SHARED_MEMORY_REDUCER_H_
