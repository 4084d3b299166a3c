#include "client/tensor_arena.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "common/tensor.h"

namespace parley {
namespace {

// A cache line, and the widest vector.
constexpr std::align_val_t kAlignment{64};

size_t RoundUp(size_t bytes) {
  constexpr auto kUnit = static_cast<size_t>(kAlignment);
  return (bytes + kUnit - 1) / kUnit * kUnit;
}

MemoryBlock OwnMemory(size_t bytes) {
  const std::shared_ptr<std::byte> memory(
      static_cast<std::byte*>(::operator new(bytes, kAlignment)),
      [](std::byte* data) { ::operator delete(data, kAlignment); });
  std::memset(memory.get(), 0, bytes);
  return {memory.get(), bytes, memory};
}

}  // namespace

TensorArena::TensorArena(const std::vector<TensorSpec>& tensors, MemorySource* source)
    : source_(source) {
  const size_t counts =
      RoundUp(std::max<size_t>(tensors.size(), 1) * sizeof(std::atomic<uint64_t>));
  size_t bytes = counts;
  for (const TensorSpec& tensor : tensors) bytes += RoundUp(ByteCount(tensor));
  if (source_ != nullptr) {
    absl::StatusOr<MemoryBlock> block = source_->Allocate(bytes);
    if (block.ok()) {
      block_ = *std::move(block);
    } else {
      source_ = nullptr;  // then it does without
    }
  }
  if (source_ == nullptr) block_ = OwnMemory(bytes);
  counts_ = reinterpret_cast<std::atomic<uint64_t>*>(block_.data);
  for (size_t i = 0; i < tensors.size(); ++i) new (counts_ + i) std::atomic<uint64_t>(1);
  std::byte* next = block_.data + counts;
  for (const TensorSpec& tensor : tensors) {
    tensors_.emplace_back(next, ByteCount(tensor));
    next += RoundUp(ByteCount(tensor));
  }
}

std::optional<MemoryPlace> TensorArena::PlaceOf(size_t i) const {
  if (source_ == nullptr) return std::nullopt;
  return source_->Find(tensors_[i].data(), tensors_[i].size());
}

void TensorArena::Recall() {
  for (size_t i = 0; i < tensors_.size(); ++i) Recall(i);
}

absl::Status TensorArena::LeaveToReaders() {
  std::vector<uint64_t> counts;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    counts.push_back(counts_[i].load(std::memory_order_relaxed));
  }
  if (absl::Status renewed = source_->Renew(block_); !renewed.ok()) return renewed;
  for (size_t i = 0; i < counts.size(); ++i) new (counts_ + i) std::atomic<uint64_t>(counts[i] + 1);
  return absl::OkStatus();
}

}  // namespace parley
