#include "server/parameter_shard/buffer.h"

#include <cstring>
#include <new>
#include <utility>

namespace parley {
namespace {

constexpr std::align_val_t kAlignment{64};

}  // namespace

Buffer::Buffer(size_t bytes)
    : size_(bytes),
      data_(static_cast<std::byte*>(::operator new(bytes == 0 ? 1 : bytes, kAlignment))) {}

Buffer::~Buffer() { ::operator delete(data_, kAlignment); }

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
  if (buffer == nullptr) buffer = std::make_unique<Buffer>(bytes);
  return std::shared_ptr<Buffer>(buffer.release(), [free = free_](Buffer* released) {
    absl::MutexLock lock(&free->mu);
    free->by_size[released->size()].push_back(std::unique_ptr<Buffer>(released));
  });
}

void BufferPool::Reserve(size_t bytes) {
  if (bytes == 0) return;
  auto buffer = std::make_unique<Buffer>(bytes);
  std::memset(buffer->data(), 0, bytes);
  absl::MutexLock lock(&free_->mu);
  free_->by_size[bytes].push_back(std::move(buffer));
}

size_t BufferPool::free_buffers() const {
  absl::MutexLock lock(&free_->mu);
  size_t count = 0;
  for (const auto& [size, buffers] : free_->by_size) count += buffers.size();
  return count;
}

}  // namespace parley
