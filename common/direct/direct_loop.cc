#include "common/direct/direct_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock/steady_now.h"

namespace parley {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);

}  // namespace

absl::StatusOr<std::unique_ptr<DirectLoop>> DirectLoop::Start() {
  FileDescriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
  FileDescriptor wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;
  if (!epoll.valid() || !wake.valid() ||
      ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) {
    return absl::ErrnoToStatus(errno, "a loop for connections");
  }
  try {
    return std::unique_ptr<DirectLoop>(new DirectLoop(std::move(epoll), std::move(wake)));
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a thread for connections cannot be made: ", error.what()));
  }
}

DirectLoop::DirectLoop(FileDescriptor epoll, FileDescriptor wake)
    : epoll_(std::move(epoll)), wake_(std::move(wake)) {
  thread_ = std::thread([this] { Run(); });
}

DirectLoop::~DirectLoop() {
  std::map<Watched*, std::shared_ptr<Watched>> left;
  {
    absl::MutexLock lock(&mu_);
    ending_ = true;
  }
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof(one));
  thread_.join();
  {
    absl::MutexLock lock(&mu_);
    left.swap(watched_);
  }
  for (const auto& [raw, watched] : left) watched->OnStop();
}

bool DirectLoop::Watch(std::shared_ptr<Watched> watched) {
  absl::MutexLock lock(&mu_);
  if (ending_) return false;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = watched.get();
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, watched->fd(), &event) != 0) return false;
  Watched* const raw = watched.get();
  watched_[raw] = std::move(watched);
  return true;
}

void DirectLoop::Want(const Watched& watched, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = const_cast<Watched*>(&watched);
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, watched.fd(), &event);
}

void DirectLoop::TickAll() {
  std::vector<std::shared_ptr<Watched>> all;
  {
    absl::MutexLock lock(&mu_);
    for (const auto& [raw, watched] : watched_) all.push_back(watched);
  }
  const absl::Time now = SteadyNow();
  for (const auto& watched : all) watched->OnTick(now);
}

void DirectLoop::Run() {
  std::array<epoll_event, 64> events;
  absl::Time tick_at = SteadyNow() + kTick;
  while (!ending_) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                   static_cast<int>(absl::ToInt64Milliseconds(kTick)));
    // What is over lives until all that was told of it has been looked at.
    std::vector<std::shared_ptr<Watched>> over;
    for (int i = 0; i < count && !ending_; ++i) {
      auto* const watched = static_cast<Watched*>(events[i].data.ptr);
      if (watched == nullptr || watched->OnReady(events[i].events)) continue;
      (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, watched->fd(), nullptr);
      absl::MutexLock lock(&mu_);
      const auto found = watched_.find(watched);
      if (found == watched_.end()) continue;
      over.push_back(std::move(found->second));
      watched_.erase(found);
    }
    if (const absl::Time now = SteadyNow(); now >= tick_at) {
      tick_at = now + kTick;
      TickAll();
    }
  }
}

}  // namespace parley
