#ifndef PARLEY_CLIENT_REDUCE_GROUP_WORDS_H_
#define PARLEY_CLIENT_REDUCE_GROUP_WORDS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/shared_memory/memory_segment.h"
#include "common/shared_memory/memory_source.h"

namespace parley {

// The sequence words of one rank of a node group, in a segment of shared memory: how far it is with
// each tensor of a step. The rank alone writes them (OwnWords), the others read them (PeerWords).
// They are of one composition; its end is written into them, and no other composition uses them.
struct GroupWords {
  static constexpr uint64_t kMagic = 0x31646f7267797270;  // another layout has another number
  static constexpr uint64_t kEnded = UINT64_MAX;

  uint64_t magic = 0;
  uint64_t tensors = 0;
  std::atomic<uint32_t> bell = 0;  // changes with each event; a futex
  uint32_t unused = 0;
  std::atomic<uint64_t> opens = 0;  // rises before gradients may be written again; kEnded: over
  std::atomic<uint64_t> step = 0;   // that is open
  std::atomic<double> weight = 0;   // of this rank's gradients in it

  struct Tensor {
    uint64_t offset = 0;              // of its gradient, in the segment of gradients
    std::atomic<uint64_t> state = 0;  // kReady or kNone of a step
  };
  // `tensors` of them follow.
};

enum class GradientState { kPending, kReady, kNone };

// The writer. Open and End: the training thread; Set: any thread.
class OwnWords {
 public:
  // offsets: of the tensors' gradients. ResourceExhausted where there is no shared memory.
  static absl::StatusOr<std::unique_ptr<OwnWords>> Make(absl::Span<const uint64_t> offsets);

  const std::shared_ptr<MemorySegment>& segment() const { return segment_; }
  const std::atomic<uint32_t>& bell() const { return head_->bell; }

  // Gradients may be written from here on.
  void Open(uint64_t step, double weight);
  // Of the open step.
  void Set(size_t tensor, GradientState state);
  GradientState Get(size_t tensor) const;
  // What was shown counts no more.
  void End();
  // The others, and this rank itself, look again.
  void Ring();

 private:
  explicit OwnWords(std::shared_ptr<MemorySegment> segment);

  const std::shared_ptr<MemorySegment> segment_;
  GroupWords* const head_;
  GroupWords::Tensor* const tensors_;
};

// The reader of another rank's, with the gradients that they are about. What the peer has written,
// however wrong, leads to no access outside of its segments. One thread uses it.
class PeerWords {
 public:
  // Internal where the segments are not those of a rank that has tensors of these sizes.
  static absl::StatusOr<std::unique_ptr<PeerWords>> Make(
      std::shared_ptr<const MemorySegment> words, std::shared_ptr<const MemorySegment> gradients,
      absl::Span<const size_t> bytes);

  const std::atomic<uint32_t>& bell() const { return head_->bell; }

  // What the tensor is in this step; pending where the peer is at another one.
  GradientState Get(size_t tensor, uint64_t step) const;
  // Of a tensor that is ready.
  const std::byte* gradient(size_t tensor) const { return gradients_->data() + offsets_[tensor]; }
  double weight() const { return head_->weight.load(std::memory_order_relaxed); }
  // To be noted before something is read, and compared after it: whether it may have been written
  // meanwhile.
  uint64_t opens() const { return head_->opens.load(std::memory_order_acquire); }
  bool Stands(uint64_t opens) const;

 private:
  PeerWords(std::shared_ptr<const MemorySegment> words,
            std::shared_ptr<const MemorySegment> gradients, std::vector<uint64_t> offsets);

  const std::shared_ptr<const MemorySegment> words_;
  const std::shared_ptr<const MemorySegment> gradients_;
  const std::vector<uint64_t> offsets_;  // as they were when they were checked
  const GroupWords* const head_;
  const GroupWords::Tensor* const tensors_;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_REDUCE_GROUP_WORDS_H_
