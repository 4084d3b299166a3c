#ifndef PARLEY_COMMON_SHARED_MEMORY_FUTEX_H_
#define PARLEY_COMMON_SHARED_MEMORY_FUTEX_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace parley {

// Waiting for a word in shared memory to change. The word may be mapped to be read only, by either
// side; its writer changes it before it wakes.

// Sleeps while the word is `seen`, until somebody wakes those who wait for it, or for so long. May
// return for no reason.
void FutexWait(const std::atomic<uint32_t>& word, uint32_t seen, absl::Duration most);

// Everybody, in all processes.
void FutexWake(const std::atomic<uint32_t>& word);

}  // namespace parley

#endif  // PARLEY_COMMON_SHARED_MEMORY_FUTEX_H_
