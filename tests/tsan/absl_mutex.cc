// For builds with ThreadSanitizer only: makes Abseil's mutexes visible to it.
//
// Debian's Abseil is not instrumented, so that ThreadSanitizer sees none of the order that its
// mutexes make, neither in our code nor in gRPC's, and reports races where there are none. The
// definitions here take the place of the library's in the whole program (the dynamic linker finds
// the program's first), call those, and tell ThreadSanitizer what each means: unlocking publishes,
// locking takes over. Reads inside are ignored: there Abseil looks at the conditions of other
// threads, under the mutex, after we have said "unlocked".
#include <dlfcn.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"

extern "C" {
void __tsan_acquire(void* address);  // NOLINT
void __tsan_release(void* address);  // NOLINT
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
}

namespace absl {
ABSL_NAMESPACE_BEGIN
namespace {

// While the library's own code runs.
class Inside {
 public:
  Inside() { AnnotateIgnoreReadsBegin(__FILE__, __LINE__); }
  ~Inside() { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
};

template <class Function>
Function Library(const char* symbol) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, symbol));
}

#define PARLEY_LIBRARY(Result, symbol, ...) \
  static const auto library = Library<Result (*)(__VA_ARGS__)>(symbol)

}  // namespace

void Mutex::Lock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  PARLEY_LIBRARY(void, "_ZN4absl7debian35Mutex4LockEv", Mutex*);
  {
    Inside inside;
    library(this);
  }
  __tsan_acquire(this);
}

void Mutex::Unlock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  PARLEY_LIBRARY(void, "_ZN4absl7debian35Mutex6UnlockEv", Mutex*);
  __tsan_release(this);
  Inside inside;
  library(this);
}

bool Mutex::TryLock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  PARLEY_LIBRARY(bool, "_ZN4absl7debian35Mutex7TryLockEv", Mutex*);
  const bool locked = library(this);
  if (locked) __tsan_acquire(this);
  return locked;
}

void Mutex::ReaderLock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  PARLEY_LIBRARY(void, "_ZN4absl7debian35Mutex10ReaderLockEv", Mutex*);
  {
    Inside inside;
    library(this);
  }
  __tsan_acquire(this);
}

void Mutex::ReaderUnlock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  PARLEY_LIBRARY(void, "_ZN4absl7debian35Mutex12ReaderUnlockEv", Mutex*);
  __tsan_release(this);
  Inside inside;
  library(this);
}

void Mutex::LockWhen(const Condition& condition) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  PARLEY_LIBRARY(void, "_ZN4absl7debian35Mutex8LockWhenERKNS0_9ConditionE", Mutex*,
                 const Condition*);
  {
    Inside inside;
    library(this, &condition);
  }
  __tsan_acquire(this);
}

void Mutex::Await(const Condition& condition) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  PARLEY_LIBRARY(void, "_ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE", Mutex*, const Condition*);
  __tsan_release(this);
  {
    Inside inside;
    library(this, &condition);
  }
  __tsan_acquire(this);
}

bool Mutex::AwaitWithTimeout(const Condition& condition,
                             Duration timeout) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  PARLEY_LIBRARY(bool, "_ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE",
                 Mutex*, const Condition*, Duration);
  __tsan_release(this);
  bool held;
  {
    Inside inside;
    held = library(this, &condition, timeout);
  }
  __tsan_acquire(this);
  return held;
}

bool Mutex::AwaitWithDeadline(const Condition& condition,
                              Time deadline) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  PARLEY_LIBRARY(bool, "_ZN4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE",
                 Mutex*, const Condition*, Time);
  __tsan_release(this);
  bool held;
  {
    Inside inside;
    held = library(this, &condition, deadline);
  }
  __tsan_acquire(this);
  return held;
}

void CondVar::Wait(Mutex* mutex) {
  PARLEY_LIBRARY(void, "_ZN4absl7debian37CondVar4WaitEPNS0_5MutexE", CondVar*, Mutex*);
  __tsan_release(mutex);
  {
    Inside inside;
    library(this, mutex);
  }
  __tsan_acquire(mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  PARLEY_LIBRARY(bool, "_ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE",
                 CondVar*, Mutex*, Duration);
  __tsan_release(mutex);
  bool timed_out;
  {
    Inside inside;
    timed_out = library(this, mutex, timeout);
  }
  __tsan_acquire(mutex);
  return timed_out;
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  PARLEY_LIBRARY(bool, "_ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE",
                 CondVar*, Mutex*, Time);
  __tsan_release(mutex);
  bool timed_out;
  {
    Inside inside;
    timed_out = library(this, mutex, deadline);
  }
  __tsan_acquire(mutex);
  return timed_out;
}

void Notification::Notify() {
  PARLEY_LIBRARY(void, "_ZN4absl7debian312Notification6NotifyEv", Notification*);
  __tsan_release(this);
  library(this);
}

void Notification::WaitForNotification() const {
  PARLEY_LIBRARY(void, "_ZNK4absl7debian312Notification19WaitForNotificationEv",
                 const Notification*);
  library(this);
  __tsan_acquire(const_cast<Notification*>(this));
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  PARLEY_LIBRARY(bool,
                 "_ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE",
                 const Notification*, Duration);
  const bool notified = library(this, timeout);
  if (notified) __tsan_acquire(const_cast<Notification*>(this));
  return notified;
}

bool Notification::WaitForNotificationWithDeadline(Time deadline) const {
  PARLEY_LIBRARY(bool,
                 "_ZNK4absl7debian312Notification31WaitForNotificationWithDeadlineENS0_4TimeE",
                 const Notification*, Time);
  const bool notified = library(this, deadline);
  if (notified) __tsan_acquire(const_cast<Notification*>(this));
  return notified;
}

ABSL_NAMESPACE_END
}  // namespace absl

// What is left: gRPC's own code in templates that are compiled into ours, and memory that goes back
// and forth through gRPC's queues, which make their order with atomics in code that is not
// instrumented.
extern "C" const char* __tsan_default_suppressions() {  // NOLINT
  return "race_top:^grpc::\n"
         "race_top:^std::\n"
         "race_top:operator delete\n";
}

extern "C" const char* __tsan_default_options() {  // NOLINT
  return "ignore_noninstrumented_modules=1";
}
