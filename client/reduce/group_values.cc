#include "client/reduce/group_values.h"

#include <cstring>
#include <new>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "common/shared_memory/fence.h"

namespace parley {
namespace {

static_assert(std::atomic<uint64_t>::is_always_lock_free);

constexpr size_t kAlignment = 64;
size_t Aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// What a slice's word says of a version. 0: nothing.
constexpr uint64_t kIsShared = 1;
constexpr uint64_t kIsWithheld = 2;
uint64_t Word(uint64_t version, uint64_t what) { return version * 4 + what; }

}  // namespace

ValuesLayout::ValuesLayout(absl::Span<const std::pair<uint64_t, uint32_t>> values, uint32_t rank) {
  bytes_ = Aligned(values.size() * sizeof(std::atomic<uint64_t>) + 1);
  for (const auto& [bytes, owner] : values) {
    places_.emplace_back(owner == rank ? bytes_ : 0, bytes);
    if (owner == rank) bytes_ += Aligned(bytes);
  }
}

size_t ValuesLayout::offset(const Reducer::Values& values) const {
  if (values.slice >= places_.size() || places_[values.slice].second != values.bytes) return 0;
  return places_[values.slice].first;
}

absl::StatusOr<std::unique_ptr<OwnValues>> OwnValues::Make(ValuesLayout layout) {
  absl::StatusOr<std::shared_ptr<MemorySegment>> segment = MemorySegment::Create(layout.bytes());
  if (!segment.ok()) return segment.status();
  return absl::WrapUnique(new OwnValues(std::move(layout), *std::move(segment)));
}

OwnValues::OwnValues(ValuesLayout layout, std::shared_ptr<MemorySegment> segment)
    : layout_(std::move(layout)),
      segment_(std::move(segment)),
      words_(reinterpret_cast<std::atomic<uint64_t>*>(segment_->data())) {
  for (size_t i = 0; i < layout_.slices(); ++i) new (words_ + i) std::atomic<uint64_t>(0);
}

bool OwnValues::Share(const Reducer::Values& values, absl::Span<const std::byte> bytes) {
  const size_t offset = layout_.offset(values);
  if (offset == 0 || bytes.size() != values.bytes) return false;
  std::atomic<uint64_t>& word = words_[values.slice];
  const uint64_t shared = Word(values.version, kIsShared);
  if (word.load(std::memory_order_relaxed) == shared) return false;
  // Whoever still copies the former version finds out.
  word.store(0, std::memory_order_relaxed);
  ThreadFence(std::memory_order_seq_cst);
  std::memcpy(segment_->data() + offset, bytes.data(), bytes.size());
  word.store(shared, std::memory_order_release);
  return true;
}

bool OwnValues::Withhold(const Reducer::Values& values) {
  if (layout_.offset(values) == 0) return false;
  const uint64_t withheld = Word(values.version, kIsWithheld);
  return words_[values.slice].exchange(withheld) != withheld;
}

void OwnValues::End() {
  for (size_t i = 0; i < layout_.slices(); ++i) words_[i].store(0);
}

absl::StatusOr<std::unique_ptr<PeerValues>> PeerValues::Make(
    ValuesLayout layout, std::shared_ptr<const MemorySegment> segment) {
  if (segment->bytes() < layout.bytes()) {
    return absl::InternalError(
        "the shared memory of another rank of the node group is too small for its values");
  }
  return absl::WrapUnique(new PeerValues(std::move(layout), std::move(segment)));
}

PeerValues::PeerValues(ValuesLayout layout, std::shared_ptr<const MemorySegment> segment)
    : layout_(std::move(layout)),
      segment_(std::move(segment)),
      words_(reinterpret_cast<const std::atomic<uint64_t>*>(segment_->data())) {}

Reducer::Taken PeerValues::Take(const Reducer::Values& values, absl::Span<std::byte> to) const {
  const size_t offset = layout_.offset(values);
  if (offset == 0 || to.size() != values.bytes) return Reducer::Taken::kWithheld;
  const std::atomic<uint64_t>& word = words_[values.slice];
  const uint64_t shared = Word(values.version, kIsShared);
  const uint64_t said = word.load(std::memory_order_acquire);
  if (said == Word(values.version, kIsWithheld)) return Reducer::Taken::kWithheld;
  if (said != shared) return Reducer::Taken::kPending;
  std::memcpy(to.data(), segment_->data() + offset, to.size());
  ThreadFence(std::memory_order_acquire);
  // What was written meanwhile is a mixture.
  return word.load(std::memory_order_relaxed) == shared ? Reducer::Taken::kTaken
                                                        : Reducer::Taken::kWithheld;
}

}  // namespace parley
