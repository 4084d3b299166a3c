#include "common/direct/receive_buffers.h"

#include <bit>
#include <new>
#include <utility>

namespace parley {
namespace {

// The allocator has warm memory of that size itself.
constexpr size_t kSmall = 32 << 10;

// Four sizes between a power of two and the next, so that one that is used again is never much
// larger than what is asked for.
size_t SizeFor(size_t bytes) {
  const size_t step = std::bit_floor(bytes) / 4;
  return (bytes + step - 1) / step * step;
}

}  // namespace

void ReceiveBuffers::Free::operator()(std::byte* memory) const {
  ::operator delete(memory, std::align_val_t(kAlignment));
}

ReceiveBuffers::Memory ReceiveBuffers::Allocate(size_t bytes) {
  return Memory(static_cast<std::byte*>(::operator new(bytes, std::align_val_t(kAlignment))));
}

std::shared_ptr<std::byte> ReceiveBuffers::Take(size_t bytes) {
  if (bytes < kSmall) return Allocate(bytes);
  const size_t size = SizeFor(bytes);
  Memory memory;
  {
    absl::MutexLock lock(&mu_);
    std::vector<Memory>& free = free_[size];
    if (!free.empty()) {
      memory = std::move(free.back());
      free.pop_back();
      kept_ -= size;
    }
  }
  if (memory == nullptr) memory = Allocate(size);
  std::byte* const raw = memory.release();
  return {raw, [pool = weak_from_this(), size](std::byte* buffer) {
            Memory memory(buffer);
            if (const auto here = pool.lock()) here->GiveBack(std::move(memory), size);
          }};
}

void ReceiveBuffers::GiveBack(Memory memory, size_t bytes) {
  absl::MutexLock lock(&mu_);
  if (kept_ + bytes > most_kept_) return;
  kept_ += bytes;
  free_[bytes].push_back(std::move(memory));
}

size_t ReceiveBuffers::kept() const {
  absl::MutexLock lock(&mu_);
  return kept_;
}

}  // namespace parley
