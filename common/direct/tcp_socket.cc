#include "common/direct/tcp_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace parley {
namespace {

constexpr int kWaiting = 512;          // connections that are not accepted yet
constexpr int kAcknowledgeMs = 15000;  // what was sent, at the latest
constexpr int kIdleSeconds = 10;       // until the system asks whether the peer is there
constexpr int kProbeSeconds = 5;

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { ::freeaddrinfo(addresses); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

absl::StatusOr<Addresses> Resolve(const std::string& host, uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat("'", host, "': ", ::gai_strerror(error)));
  }
  return Addresses(found);
}

void SetUp(const FileDescriptor& fd) {
  const auto set = [&](int level, int option, int value) {
    (void)::setsockopt(fd.get(), level, option, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, kAcknowledgeMs);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds);
}

FileDescriptor MakeSocket(const addrinfo& address) {
  return FileDescriptor(
      ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol));
}

absl::StatusOr<TcpListener> ListenAt(const addrinfo& address, uint16_t port) {
  TcpListener listener = {MakeSocket(address)};
  if (!listener.fd.valid()) return absl::ErrnoToStatus(errno, "a socket");
  const int off = 0;
  if (address.ai_family == AF_INET6) {
    (void)::setsockopt(listener.fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  // Connections of a process that was here before may linger; one that listens keeps the port. The
  // system lets the port be taken again only if they had the option as well: they have it from
  // their listener, which with port 0 gets it when it has a port that nothing lingers at.
  const int on = 1;
  const auto let_reuse = [&] {
    (void)::setsockopt(listener.fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  };
  if (port != 0) let_reuse();
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  const int taken = ::bind(listener.fd.get(), address.ai_addr, address.ai_addrlen);
  if (taken == 0 && port == 0) let_reuse();
  if (taken != 0 || ::listen(listener.fd.get(), kWaiting) != 0 ||
      ::getsockname(listener.fd.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    return absl::ErrnoToStatus(errno, "listening");
  }
  listener.port =
      ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port
                                        : reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
  return listener;
}

}  // namespace

absl::StatusOr<TcpListener> ListenTcp(const std::string& host, uint16_t port) {
  // As gRPC does: all addresses of either kind.
  if (host == "0.0.0.0" || host == "[::]" || host == "::") {
    if (const auto all = Resolve("::", port, AI_PASSIVE | AI_NUMERICHOST); all.ok()) {
      if (auto listener = ListenAt(**all, port); listener.ok()) return listener;
    }
  }
  const std::string name(absl::StripSuffix(absl::StripPrefix(host, "["), "]"));
  const auto found = Resolve(name == "::" ? "0.0.0.0" : name, port, AI_PASSIVE);
  if (!found.ok()) return found.status();
  absl::Status why = absl::UnavailableError(absl::StrCat("'", host, "' has no address"));
  for (const addrinfo* address = found->get(); address != nullptr; address = address->ai_next) {
    auto listener = ListenAt(*address, port);
    if (listener.ok()) return listener;
    why = listener.status();
  }
  return absl::UnavailableError(why.message());
}

absl::StatusOr<FileDescriptor> AcceptTcp(const FileDescriptor& listener) {
  FileDescriptor fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return absl::NotFoundError("nobody has come");
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      return absl::ResourceExhaustedError("too many open files");
    }
    return absl::UnavailableError("one that had come has gone");
  }
  SetUp(fd);
  return fd;
}

std::string PeerOf(const FileDescriptor& connection) {
  sockaddr_storage peer{};
  socklen_t size = sizeof(peer);
  auto* const address = reinterpret_cast<sockaddr*>(&peer);
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (::getpeername(connection.get(), address, &size) != 0 ||
      ::getnameinfo(address, size, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "";
  }
  // Of IPv4, where all addresses of either kind are listened at.
  const absl::string_view plain = absl::StripPrefix(host, "::ffff:");
  return absl::StrContains(plain, ':') ? absl::StrCat("[", plain, "]:", port)
                                       : absl::StrCat(plain, ":", port);
}

absl::StatusOr<FileDescriptor> ConnectTcp(const std::string& peer, uint16_t port) {
  const std::string plain = absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}, {"%25", "%"}});
  const bool six = absl::StartsWith(plain, "ipv6:");
  const size_t colon = plain.rfind(':');
  if ((!six && !absl::StartsWith(plain, "ipv4:")) || colon <= 5) {
    return absl::InvalidArgumentError(absl::StrCat("'", peer, "' is no address of TCP"));
  }
  const std::string host = plain.substr(5, colon - 5);
  const auto address = Resolve(std::string(absl::StripSuffix(absl::StripPrefix(host, "["), "]")),
                               port, AI_NUMERICHOST);
  if (!address.ok()) return absl::InvalidArgumentError(address.status().message());
  FileDescriptor fd = MakeSocket(**address);
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "a socket");
  SetUp(fd);
  if (::connect(fd.get(), (*address)->ai_addr, (*address)->ai_addrlen) != 0 &&
      errno != EINPROGRESS) {
    return absl::UnavailableError(absl::StrCat(peer, ": port ", port, " does not answer"));
  }
  return fd;
}

}  // namespace parley
