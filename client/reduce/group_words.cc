#include "client/reduce/group_words.h"

#include <new>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/shared_memory/fence.h"
#include "common/shared_memory/futex.h"

namespace parley {
namespace {

static_assert(sizeof(GroupWords) % alignof(GroupWords::Tensor) == 0);
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<double>::is_always_lock_free);

// A tensor's state in a step, as one word.
uint64_t Word(uint64_t step, GradientState state) {
  return step * 4 + static_cast<uint64_t>(state);
}

size_t BytesOf(size_t tensors) { return sizeof(GroupWords) + tensors * sizeof(GroupWords::Tensor); }

absl::Status NotARank(const char* what) {
  return absl::InternalError(
      absl::StrCat("the shared memory of another rank of the node group is not what a rank of this "
                   "job has: ",
                   what));
}

}  // namespace

absl::StatusOr<std::unique_ptr<OwnWords>> OwnWords::Make(absl::Span<const uint64_t> offsets) {
  absl::StatusOr<std::shared_ptr<MemorySegment>> segment =
      MemorySegment::Create(BytesOf(offsets.size()));
  if (!segment.ok()) return segment.status();
  auto* const head = new ((*segment)->data()) GroupWords;
  head->magic = GroupWords::kMagic;
  head->tensors = offsets.size();
  auto* const tensors =
      reinterpret_cast<GroupWords::Tensor*>((*segment)->data() + sizeof(GroupWords));
  for (size_t i = 0; i < offsets.size(); ++i) {
    (new (tensors + i) GroupWords::Tensor)->offset = offsets[i];
  }
  return std::unique_ptr<OwnWords>(new OwnWords(*std::move(segment)));
}

OwnWords::OwnWords(std::shared_ptr<MemorySegment> segment)
    : segment_(std::move(segment)),
      head_(reinterpret_cast<GroupWords*>(segment_->data())),
      tensors_(reinterpret_cast<GroupWords::Tensor*>(segment_->data() + sizeof(GroupWords))) {}

void OwnWords::Ring() {
  head_->bell.fetch_add(1);
  FutexWake(head_->bell);
}

void OwnWords::Open(uint64_t step, double weight) {
  head_->opens.fetch_add(1);
  for (size_t i = 0; i < head_->tensors; ++i) {
    tensors_[i].state.store(0, std::memory_order_relaxed);
  }
  head_->weight.store(weight, std::memory_order_relaxed);
  head_->step.store(step, std::memory_order_relaxed);
  // Whoever sees something of the new gradients sees all of this.
  ThreadFence(std::memory_order_seq_cst);
  Ring();
}

void OwnWords::Set(size_t tensor, GradientState state) {
  const uint64_t step = head_->step.load(std::memory_order_relaxed);
  tensors_[tensor].state.store(Word(step, state), std::memory_order_release);
  Ring();
}

GradientState OwnWords::Get(size_t tensor) const {
  const uint64_t word = tensors_[tensor].state.load(std::memory_order_acquire);
  return static_cast<GradientState>(word % 4);
}

void OwnWords::End() {
  head_->opens.store(GroupWords::kEnded);
  for (size_t i = 0; i < head_->tensors; ++i) {
    tensors_[i].state.store(0, std::memory_order_relaxed);
  }
  ThreadFence(std::memory_order_seq_cst);
  Ring();
}

absl::StatusOr<std::unique_ptr<PeerWords>> PeerWords::Make(
    std::shared_ptr<const MemorySegment> words, std::shared_ptr<const MemorySegment> gradients,
    absl::Span<const size_t> bytes) {
  if (words->bytes() < BytesOf(bytes.size())) return NotARank("too few words");
  const auto* const head = reinterpret_cast<const GroupWords*>(words->data());
  if (head->magic != GroupWords::kMagic || head->tensors != bytes.size()) {
    return NotARank("other words");
  }
  const auto* const tensors =
      reinterpret_cast<const GroupWords::Tensor*>(words->data() + sizeof(GroupWords));
  std::vector<uint64_t> offsets;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const uint64_t offset = tensors[i].offset;
    if (offset % alignof(double) != 0 || offset > gradients->bytes() ||
        bytes[i] > gradients->bytes() - offset) {
      return NotARank("a gradient that does not lie in it");
    }
    offsets.push_back(offset);
  }
  return std::unique_ptr<PeerWords>(
      new PeerWords(std::move(words), std::move(gradients), std::move(offsets)));
}

PeerWords::PeerWords(std::shared_ptr<const MemorySegment> words,
                     std::shared_ptr<const MemorySegment> gradients, std::vector<uint64_t> offsets)
    : words_(std::move(words)),
      gradients_(std::move(gradients)),
      offsets_(std::move(offsets)),
      head_(reinterpret_cast<const GroupWords*>(words_->data())),
      tensors_(reinterpret_cast<const GroupWords::Tensor*>(words_->data() + sizeof(GroupWords))) {}

GradientState PeerWords::Get(size_t tensor, uint64_t step) const {
  const uint64_t word = tensors_[tensor].state.load(std::memory_order_acquire);
  if (word == Word(step, GradientState::kReady)) return GradientState::kReady;
  if (word == Word(step, GradientState::kNone)) return GradientState::kNone;
  return GradientState::kPending;
}

bool PeerWords::Stands(uint64_t opens) const {
  ThreadFence(std::memory_order_acquire);
  return opens != GroupWords::kEnded && head_->opens.load(std::memory_order_relaxed) == opens;
}

}  // namespace parley
