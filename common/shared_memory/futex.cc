#include "common/shared_memory/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace parley {
namespace {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

// Not the private kinds: other processes have the word, too. The kernel only reads it.
void Call(const std::atomic<uint32_t>& word, int what, uint32_t value, const timespec* most) {
  (void)::syscall(SYS_futex, reinterpret_cast<uintptr_t>(&word), what, value, most, nullptr, 0);
}

}  // namespace

void FutexWait(const std::atomic<uint32_t>& word, uint32_t seen, absl::Duration most) {
  if (most <= absl::ZeroDuration()) return;
  const timespec limit = absl::ToTimespec(most);
  Call(word, FUTEX_WAIT, seen, &limit);
}

void FutexWake(const std::atomic<uint32_t>& word) { Call(word, FUTEX_WAKE, INT_MAX, nullptr); }

}  // namespace parley
