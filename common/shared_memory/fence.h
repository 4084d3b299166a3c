#ifndef PARLEY_COMMON_SHARED_MEMORY_FENCE_H_
#define PARLEY_COMMON_SHARED_MEMORY_FENCE_H_

#include <atomic>

namespace parley {

// std::atomic_thread_fence, which the thread sanitizer does not know (and GCC refuses to compile
// with it). What is shared with other processes it does not watch anyway.
inline void ThreadFence(std::memory_order order) {
#if defined(__SANITIZE_THREAD__)
  (void)order;
#else
  std::atomic_thread_fence(order);
#endif
}

}  // namespace parley

#endif  // PARLEY_COMMON_SHARED_MEMORY_FENCE_H_
