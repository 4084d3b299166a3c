#ifndef PARLEY_COMMON_DIRECT_RECEIVE_BUFFERS_H_
#define PARLEY_COMMON_DIRECT_RECEIVE_BUFFERS_H_

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace parley {

// Memory that tensors are received into, used again when the last that has it lets go of it: fresh
// memory, page by page, costs as much as the receiving. Held as shared; buffers may outlive it.
// Thread-safe.
class ReceiveBuffers : public std::enable_shared_from_this<ReceiveBuffers> {
 public:
  // Where a tensor may begin in a buffer: what vector instructions and LibTorch ask for.
  static constexpr size_t kAlignment = 64;

  // most_kept: bytes that wait to be used again, at most.
  explicit ReceiveBuffers(size_t most_kept) : most_kept_(most_kept) {}

  // At least so many bytes, aligned, of no certain contents.
  std::shared_ptr<std::byte> Take(size_t bytes);

  size_t kept() const;  // bytes

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  using Memory = std::unique_ptr<std::byte, Free>;

  static Memory Allocate(size_t bytes);
  void GiveBack(Memory memory, size_t bytes);

  const size_t most_kept_;
  mutable absl::Mutex mu_;
  std::map<size_t, std::vector<Memory>> free_ ABSL_GUARDED_BY(mu_);  // by size
  size_t kept_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace parley

#endif  // PARLEY_COMMON_DIRECT_RECEIVE_BUFFERS_H_
