#include "server/parameter_shard/buffer.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

namespace parley {
namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kPage = 4096;
constexpr size_t kHugePage = 2 << 20;

// Values of so many bytes begin a page: a worker on this machine can let them stand among its
// parameters (client/parameter_arena.h).
constexpr size_t kShown = 256 << 10;

// What has room for huge pages begins with one: a page fault then brings 2 MiB in place of 4 KiB,
// which is most of what first writing a large slice costs.
std::align_val_t AlignmentOf(size_t bytes) {
  return std::align_val_t{bytes >= kHugePage ? kHugePage : kCacheLine};
}

std::byte* Allocate(size_t bytes) {
  void* const memory = ::operator new(bytes == 0 ? 1 : bytes, AlignmentOf(bytes));
  // Advice: where the system has no huge pages nothing changes.
  if (const size_t huge = bytes / kHugePage * kHugePage; huge != 0) {
    (void)::madvise(memory, huge, MADV_HUGEPAGE);
  }
  return static_cast<std::byte*>(memory);
}

}  // namespace

Buffer::Buffer(size_t bytes, MemorySource* source) : size_(bytes) {
  if (source != nullptr) {
    const bool shown = bytes >= kShown;
    absl::StatusOr<MemoryBlock> block = source->Allocate(
        shown ? (bytes + kPage - 1) / kPage * kPage + 2 * kPage : kCacheLine + bytes);
    if (block.ok()) {
      block_ = *std::move(block);
      count_ = new (block_.data) std::atomic<uint64_t>(0);
      data_ = block_.data + kCacheLine;
      if (shown) data_ += (kPage - reinterpret_cast<uintptr_t>(data_) % kPage) % kPage;
      return;
    }
  }
  data_ = Allocate(bytes);
}

Buffer::~Buffer() {
  if (count_ == nullptr) ::operator delete(data_, AlignmentOf(size_));
}

PinnedBuffer Pin(const std::shared_ptr<Buffer>& buffer) {
  buffer->pins_.fetch_add(1, std::memory_order_relaxed);
  // The owner is kept too: a version may leave its slice while a reader still has it.
  return PinnedBuffer(buffer.get(), [owner = buffer](const Buffer*) {
    owner->pins_.fetch_sub(1, std::memory_order_release);
  });
}

std::shared_ptr<Buffer> BufferPool::Take(size_t bytes) {
  std::unique_ptr<Buffer> buffer;
  {
    absl::MutexLock lock(&free_->mu);
    auto& buffers = free_->by_size[bytes];
    if (!buffers.empty()) {
      buffer = std::move(buffers.back());
      buffers.pop_back();
    }
  }
  if (buffer == nullptr) buffer = std::make_unique<Buffer>(bytes, source_);
  buffer->Recall();
  return std::shared_ptr<Buffer>(buffer.release(), [free = free_](Buffer* released) {
    free->Put(std::unique_ptr<Buffer>(released));
  });
}

std::function<void()> BufferPool::Reservation(std::map<size_t, size_t> counts) const {
  return [counts = std::move(counts), source = source_, free = free_] {
    for (const auto& [bytes, count] : counts) {
      while (free->Count(bytes) < count) {
        auto buffer = std::make_unique<Buffer>(bytes, source);
        std::memset(buffer->data(), 0, bytes);
        free->Put(std::move(buffer));
      }
    }
  };
}

size_t BufferPool::free_buffers() const {
  absl::MutexLock lock(&free_->mu);
  size_t count = 0;
  for (const auto& [size, buffers] : free_->by_size) count += buffers.size();
  return count;
}

}  // namespace parley
