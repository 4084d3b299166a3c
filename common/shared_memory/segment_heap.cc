#include "common/shared_memory/segment_heap.h"

#include <utility>

namespace parley {
namespace {

constexpr size_t kAlignment = 64;

size_t Aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

absl::StatusOr<std::shared_ptr<SegmentHeap::Chunk>> SegmentHeap::MakeChunk(size_t bytes) {
  absl::StatusOr<std::shared_ptr<MemorySegment>> segment = MemorySegment::Create(bytes);
  if (!segment.ok()) return segment.status();
  for (auto it = chunks_.begin(); it != chunks_.end();) {
    it = it->second.expired() ? chunks_.erase(it) : std::next(it);
  }
  auto chunk = std::make_shared<Chunk>();
  chunk->number = next_number_++;
  chunk->segment = *std::move(segment);
  chunks_[chunk->segment->data()] = chunk;
  return chunk;
}

absl::StatusOr<MemoryBlock> SegmentHeap::Allocate(size_t bytes) {
  const size_t whole = Aligned(bytes);
  absl::MutexLock lock(&mu_);
  if (whole >= segment_bytes_) {
    absl::StatusOr<std::shared_ptr<Chunk>> chunk = MakeChunk(whole);
    if (!chunk.ok()) return chunk.status();
    return MemoryBlock{(*chunk)->segment->data(), bytes, *chunk};
  }
  if (open_ == nullptr || used_ + whole > segment_bytes_) {
    absl::StatusOr<std::shared_ptr<Chunk>> chunk = MakeChunk(segment_bytes_);
    if (!chunk.ok()) return chunk.status();
    open_ = *std::move(chunk);
    used_ = 0;
  }
  std::byte* const data = open_->segment->data() + used_;
  used_ += whole;
  return MemoryBlock{data, bytes, open_};
}

absl::Status SegmentHeap::Renew(const MemoryBlock& block) {
  absl::MutexLock lock(&mu_);
  const auto found = chunks_.find(block.data);
  const std::shared_ptr<Chunk> chunk = found == chunks_.end() ? nullptr : found->second.lock();
  if (chunk == nullptr || chunk == open_) {
    return absl::InvalidArgumentError("Renew: not a block with a segment of its own");
  }
  absl::StatusOr<std::shared_ptr<MemorySegment>> fresh = MemorySegment::InPlaceOf(*chunk->segment);
  if (!fresh.ok()) return fresh.status();
  chunk->segment = *std::move(fresh);
  chunk->number = next_number_++;
  return absl::OkStatus();
}

std::optional<SegmentHeap::Place> SegmentHeap::Find(const void* data, size_t bytes) const {
  const auto* const begin = static_cast<const std::byte*>(data);
  absl::MutexLock lock(&mu_);
  auto it = chunks_.upper_bound(begin);
  if (it == chunks_.begin()) return std::nullopt;
  const std::shared_ptr<Chunk> chunk = (--it)->second.lock();
  if (chunk == nullptr) return std::nullopt;
  const auto offset = static_cast<size_t>(begin - chunk->segment->data());
  if (offset > chunk->segment->bytes() || bytes > chunk->segment->bytes() - offset) {
    return std::nullopt;
  }
  return Place{chunk->number, offset, chunk->segment};
}

}  // namespace parley
