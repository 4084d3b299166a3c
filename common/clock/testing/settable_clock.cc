#include "common/clock/testing/settable_clock.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

namespace {

constexpr int64_t kSecond = 1'000'000'000;
// How long the kernel sleeps before the clock is read again.
constexpr int64_t kNap = 10'000'000;

std::atomic<int64_t> own_ahead = 0;
std::atomic<int64_t>* ahead = &own_ahead;

__attribute__((constructor)) void FindFile() {
  const char* name = getenv("SETTABLE_CLOCK");
  const int file = name == nullptr ? -1 : open(name, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  void* bytes = mmap(nullptr, sizeof(*ahead), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (bytes != MAP_FAILED) ahead = static_cast<std::atomic<int64_t>*>(bytes);
}

template <class Function>
Function* Libc(const char* name, Function*) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

int64_t Nanoseconds(const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; }

timespec Timespec(int64_t nanoseconds) { return {nanoseconds / kSecond, nanoseconds % kSecond}; }

int64_t WallNow() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return Nanoseconds(now);
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  static auto* const real = Libc("clock_gettime", &clock_gettime);
  const int result = real(clock, time);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    *time = Timespec(Nanoseconds(*time) + *ahead);
  }
  return result;
}

int gettimeofday(timeval* time, void*) noexcept {
  const int64_t now = WallNow();
  *time = {now / kSecond, now % kSecond / 1000};
  return 0;
}

time_t time(time_t* result) noexcept {
  const time_t now = WallNow() / kSecond;
  if (result != nullptr) *result = now;
  return now;
}

// A wait for a word until a time of the wall clock: in naps, since the kernel's clock is another.
long syscall(long number, ...) noexcept {
  static auto* const real = Libc("syscall", &syscall);
  long a[6];
  va_list arguments;
  va_start(arguments, number);
  for (long& argument : a) argument = va_arg(arguments, long);
  va_end(arguments);
  const auto* until = reinterpret_cast<const timespec*>(a[3]);
  if (number != SYS_futex || (a[1] & FUTEX_CLOCK_REALTIME) == 0 || until == nullptr) {
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  }
  while (true) {
    const int64_t left = Nanoseconds(*until) - WallNow();
    if (left <= 0) {
      errno = ETIMEDOUT;
      return -1;
    }
    const timespec nap = Timespec(std::min(left, kNap));
    const long result =
        real(SYS_futex, a[0], FUTEX_WAIT | (a[1] & FUTEX_PRIVATE_FLAG), a[2], &nap, nullptr, 0);
    if (result == 0 || errno != ETIMEDOUT) return result;
  }
}

}  // extern "C"

namespace parley {

void SetWallClockAhead(absl::Duration duration) { own_ahead = absl::ToInt64Nanoseconds(duration); }

}  // namespace parley
