#include "common/bounded_writer.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstddef>
#include <deque>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/clock/await.h"

namespace parley {
namespace {

// Some thousand lines of a log.
constexpr size_t kMostWaiting = 256 << 10;

// A closed pipe or a full disk must not end the job: nothing is to be done about it here.
void WriteOnce(int fd, const std::string& text) {
  if (::write(fd, text.data(), text.size()) < 0) return;
}

}  // namespace

struct BoundedWriter::Shared {
  explicit Shared(int to) : fd(to) {}

  const int fd;
  absl::Mutex mu;
  bool started ABSL_GUARDED_BY(mu) = false;
  bool ends ABSL_GUARDED_BY(mu) = false;
  std::deque<std::string> texts ABSL_GUARDED_BY(mu);
  size_t waiting ABSL_GUARDED_BY(mu) = 0;  // bytes of `texts`
  uint64_t added ABSL_GUARDED_BY(mu) = 0;
  uint64_t written ABSL_GUARDED_BY(mu) = 0;
  uint64_t late ABSL_GUARDED_BY(mu) = 0;  // the last that was awaited in vain
};

BoundedWriter::BoundedWriter(int fd) : shared_(std::make_shared<Shared>(fd)) {}

BoundedWriter::~BoundedWriter() {
  absl::MutexLock lock(&shared_->mu);
  shared_->ends = true;
}

bool BoundedWriter::Add(std::string text, bool whatever_waits) {
  absl::MutexLock lock(&shared_->mu);
  const bool is_full = !shared_->texts.empty() && shared_->waiting + text.size() > kMostWaiting;
  if (is_full && !whatever_waits) return false;
  ++shared_->added;
  shared_->waiting += text.size();
  shared_->texts.push_back(std::move(text));
  if (std::exchange(shared_->started, true)) return true;
  // Signals are for the process's other threads, some of which may not be there yet.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([shared = shared_] { Run(*shared); }).detach();
  } catch (const std::system_error&) {
    // No thread is to be had now: it is written here, and the next one tries again.
    shared_->started = false;
    WriteOnce(shared_->fd, shared_->texts.front());
    shared_->texts.clear();
    shared_->waiting = 0;
    shared_->written = shared_->added;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return true;
}

void BoundedWriter::Run(Shared& shared) {
  absl::MutexLock lock(&shared.mu);
  const auto has_work = [&shared] {
    shared.mu.AssertHeld();
    return shared.ends || !shared.texts.empty();
  };
  while (true) {
    shared.mu.Await(absl::Condition(&has_work));
    if (shared.ends) return;
    const std::string text = std::move(shared.texts.front());
    shared.texts.pop_front();
    shared.waiting -= text.size();
    shared.mu.Unlock();
    WriteOnce(shared.fd, text);
    shared.mu.Lock();
    ++shared.written;
  }
}

bool BoundedWriter::Await(absl::Duration patience) {
  absl::MutexLock lock(&shared_->mu);
  const uint64_t until = shared_->added;
  const auto done = [&shared = *shared_, until] {
    shared.mu.AssertHeld();
    return shared.written >= until;
  };
  if (AwaitFor(shared_->mu, absl::Condition(&done), patience)) return true;
  if (until > shared_->late) shared_->late = until;
  return false;
}

bool BoundedWriter::is_late() const {
  absl::MutexLock lock(&shared_->mu);
  return shared_->written < shared_->late;
}

}  // namespace parley
