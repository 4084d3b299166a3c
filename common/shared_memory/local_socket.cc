#include "common/shared_memory/local_socket.h"

#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/clock/steady_now.h"

namespace parley {
namespace {

constexpr int kWaiting = 128;  // connections that are not accepted yet

// So long a receiver looks again and again before it sleeps, since to be woken takes about as long;
// other threads that can run go first.
constexpr absl::Duration kLook = absl::Microseconds(50);

// An abstract name: its first byte is 0.
absl::StatusOr<std::pair<sockaddr_un, socklen_t>> AddressOf(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("'", name, "' is too long for a local name"));
  }
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return std::pair(address,
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size()));
}

FileDescriptor MakeSocket(int flags) {
  return FileDescriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
}

bool IsOwnUser(const FileDescriptor& fd) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return ::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         peer.uid == ::geteuid();
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalSocket>> LocalSocket::Connect(const std::string& name) {
  const auto address = AddressOf(name);
  if (!address.ok()) return address.status();
  // Not blocking only while it connects: a listener that accepts nothing must not hold us up.
  FileDescriptor fd = MakeSocket(SOCK_NONBLOCK);
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "a local socket");
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address->first), address->second) !=
      0) {
    return absl::UnavailableError(absl::StrCat("nobody listens by the local name ", name));
  }
  if (!IsOwnUser(fd)) {
    return absl::PermissionDeniedError(
        absl::StrCat("the process that listens by the local name ", name, " is another user's"));
  }
  return std::make_unique<LocalSocket>(std::move(fd));
}

absl::Status LocalSocket::Send(std::string_view bytes, absl::Span<const int> files) {
  if (bytes.size() > kMostBytes || files.size() > kMostFiles) {
    return absl::InvalidArgumentError(
        absl::StrCat("a local message of ", bytes.size(), " bytes and ", files.size(), " files"));
  }
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(kMostFiles * sizeof(int))] = {};
  if (!files.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(files.size() * sizeof(int));
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), files.data(), files.size() * sizeof(int));
  }
  while (::sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ETOOMANYREFS) {
      return absl::ResourceExhaustedError("the local peer does not read what it was sent");
    }
    return absl::UnavailableError("the local peer is gone");
  }
  return absl::OkStatus();
}

absl::StatusOr<LocalMessage> LocalSocket::Receive(absl::Time deadline) {
  buffer_.resize(kMostBytes);
  const absl::Time sleep_at = SteadyNow() + kLook;
  while (true) {
    iovec part{buffer_.data(), buffer_.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(kMostFiles * sizeof(int))] = {};
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t size = ::recvmsg(fd_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      const absl::Time now = SteadyNow();
      const absl::Duration rest = deadline - now;
      if (now < sleep_at && rest > absl::ZeroDuration()) {
        (void)::sched_yield();
        continue;
      }
      if (rest <= absl::ZeroDuration()) return absl::DeadlineExceededError("no local message");
      Await(deadline);
      continue;
    }
    if (size < 0) return absl::UnavailableError("the local peer is gone");
    LocalMessage received;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
        received.files.emplace_back(fd);
      }
    }
    if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
      return absl::InvalidArgumentError("a local message that is larger than any may be");
    }
    // Nobody sends an empty message: it is the end.
    if (size == 0) return absl::UnavailableError("the local peer is gone");
    received.bytes.assign(buffer_.data(), static_cast<size_t>(size));
    return received;
  }
}

void LocalSocket::Await(absl::Time deadline) const {
  // A millisecond more, so that the deadline is over when it says so; looked at now and then.
  const absl::Duration nap = std::clamp(deadline - SteadyNow() + absl::Milliseconds(1),
                                        absl::ZeroDuration(), absl::Hours(1));
  pollfd waiting{fd_.get(), POLLIN, 0};
  (void)::poll(&waiting, 1, static_cast<int>(absl::ToInt64Milliseconds(nap)));
}

void LocalSocket::Shutdown() { (void)::shutdown(fd_.get(), SHUT_RDWR); }

absl::StatusOr<std::unique_ptr<LocalListener>> LocalListener::Listen(const std::string& name) {
  const auto address = AddressOf(name);
  if (!address.ok()) return address.status();
  FileDescriptor fd = MakeSocket(0);
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "a local socket");
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address->first), address->second) != 0 ||
      ::listen(fd.get(), kWaiting) != 0) {
    return absl::UnavailableError(absl::StrCat(
        "the local name ", name, " cannot be had: ", absl::ErrnoToStatus(errno, "bind").message()));
  }
  return std::unique_ptr<LocalListener>(new LocalListener(std::move(fd)));
}

absl::StatusOr<std::unique_ptr<LocalSocket>> LocalListener::Accept() {
  while (true) {
    FileDescriptor fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (fd.valid()) {
      if (!IsOwnUser(fd)) continue;
      return std::make_unique<LocalSocket>(std::move(fd));
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      absl::SleepFor(absl::Milliseconds(50));
      continue;
    }
    return absl::UnavailableError("no local connections are accepted any more");
  }
}

void LocalListener::Shutdown() { (void)::shutdown(fd_.get(), SHUT_RDWR); }

}  // namespace parley
