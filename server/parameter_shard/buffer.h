#ifndef PARLEY_SERVER_PARAMETER_SHARD_BUFFER_H_
#define PARLEY_SERVER_PARAMETER_SHARD_BUFFER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/shared_memory/memory_source.h"
#include "common/tensor_slice.h"

namespace parley {

// Memory of a slice's values, state or sum, aligned to 64 bytes, or where it is large to 2 MiB with
// huge pages asked for. Readers that keep it beyond the shard's lock hold a pin; whoever owns it
// writes in place only while there is none. Where the memory is a source's, which other processes
// may be shown, a count says when it is going to be written, for those whose pins went before they
// had read.
class Buffer {
 public:
  // source: nullptr for memory that nobody else can see; as where it has none.
  explicit Buffer(size_t bytes, MemorySource* source = nullptr);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  size_t size() const { return size_; }
  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }

  // The memory as elements of T.
  template <class T>
  absl::Span<T> as() {
    return {reinterpret_cast<T*>(data_), size_ / sizeof(T)};
  }
  template <class T>
  absl::Span<const T> as() const {
    return {reinterpret_cast<const T*>(data_), size_ / sizeof(T)};
  }

  // What it holds now, for one who is shown it. Under a pin.
  Loan Lend() const {
    return count_ == nullptr ? Loan() : Loan{count_, count_->load(std::memory_order_relaxed)};
  }
  // Before each time that it is written.
  void Recall() {
    if (count_ != nullptr) count_->fetch_add(1);
  }

  // False means that what former readers read happened before.
  bool pinned() const { return pins_.load(std::memory_order_acquire) != 0; }

 private:
  friend std::shared_ptr<const Buffer> Pin(const std::shared_ptr<Buffer>& buffer);

  const size_t size_;
  MemoryBlock block_;                       // a source's
  std::atomic<uint64_t>* count_ = nullptr;  // at its beginning
  std::byte* data_;
  std::atomic<int> pins_ = 0;
};

// A handle that keeps the buffer and its contents. Made under the shard's lock; copied and dropped
// on any thread.
using PinnedBuffer = std::shared_ptr<const Buffer>;
PinnedBuffer Pin(const std::shared_ptr<Buffer>& buffer);

// Buffers that nobody holds any more, for the next taker of the same size: a freed large block
// would go back to the system and fault in again. Thread-safe: the last holder may be a reader on
// any thread.
class BufferPool {
 public:
  // source: of their memory, as Buffer's; must outlive the pool.
  explicit BufferPool(MemorySource* source = nullptr)
      : source_(source), free_(std::make_shared<Free>()) {}

  // Contents are not defined.
  std::shared_ptr<Buffer> Take(size_t bytes);

  // What makes so many buffers of each size (bytes to count), less those that nobody holds, and
  // touches their memory, for later takers: so that nobody has to wait for the system to give it
  // then. That takes its time: to be called under no lock, on any thread, as long as the source is
  // there, even when the pool has gone.
  std::function<void()> Reservation(std::map<size_t, size_t> counts) const;

  size_t free_buffers() const;

  // What Unshare (versioned_values.h) had to copy since the last call, in bytes.
  void CountCopied(size_t bytes) { copied_ += bytes; }
  size_t TakeCopied() { return copied_.exchange(0); }

 private:
  struct Free {
    absl::Mutex mu;
    std::map<size_t, std::vector<std::unique_ptr<Buffer>>> by_size ABSL_GUARDED_BY(mu);

    size_t Count(size_t bytes) {
      absl::MutexLock lock(&mu);
      const auto it = by_size.find(bytes);
      return it == by_size.end() ? 0 : it->second.size();
    }
    void Put(std::unique_ptr<Buffer> buffer) {
      absl::MutexLock lock(&mu);
      by_size[buffer->size()].push_back(std::move(buffer));
    }
  };
  MemorySource* const source_;
  const std::shared_ptr<Free> free_;  // outlives the pool while buffers are out
  std::atomic<size_t> copied_ = 0;
};

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_BUFFER_H_
