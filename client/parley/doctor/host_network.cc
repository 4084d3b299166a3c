#include "client/parley/doctor/host_network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/parley/doctor/within_time.h"
#include "common/clock/steady_now.h"
#include "common/file_descriptor.h"

namespace parley {
namespace {

// A name server that is away is asked again and again; who waits longer waits in vain.
constexpr absl::Duration kResolve = absl::Seconds(20);

struct Sockaddr {
  sockaddr_storage storage{};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

std::string NumericText(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST] = "";
  if (getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return text;
}

// Of a numeric address: asks nobody.
std::optional<Sockaddr> SockaddrOf(const std::string& address, uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.c_str(), absl::StrCat(port).c_str(), &hints, &found) != 0) {
    return std::nullopt;
  }
  Sockaddr result;
  std::memcpy(&result.storage, found->ai_addr, found->ai_addrlen);
  result.size = found->ai_addrlen;
  freeaddrinfo(found);
  return result;
}

absl::StatusOr<std::vector<std::string>> ResolveNow(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) return absl::NotFoundError(gai_strerror(error));
  std::vector<std::string> addresses;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    addresses.push_back(NumericText(each->ai_addr, each->ai_addrlen));
  }
  freeaddrinfo(found);
  return addresses;
}

class RealNetwork final : public HostNetwork {
 public:
  absl::StatusOr<std::vector<std::string>> Resolve(const std::string& host) override {
    auto addresses = WithinTime(kResolve, [host] { return ResolveNow(host); });
    if (!addresses) {
      return absl::DeadlineExceededError(
          absl::StrCat("no answer within ", absl::FormatDuration(kResolve)));
    }
    return *std::move(addresses);
  }

  std::vector<std::string> OwnAddresses() override {
    std::vector<std::string> addresses;
    ifaddrs* all = nullptr;
    if (getifaddrs(&all) != 0) return addresses;
    for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
      if (each->ifa_addr == nullptr) continue;
      const int family = each->ifa_addr->sa_family;
      if (family != AF_INET && family != AF_INET6) continue;
      const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      const std::string text = NumericText(each->ifa_addr, size);
      // Of one link only: nobody names it.
      if (!absl::StrContains(text, '%')) addresses.push_back(text);
    }
    freeifaddrs(all);
    return addresses;
  }

  absl::Status TryListen(const std::string& address, uint16_t port) override {
    const auto where = SockaddrOf(address, port);
    if (!where) return absl::NotFoundError("no numeric address");
    const FileDescriptor fd(::socket(where->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd.valid()) return absl::UnavailableError(std::strerror(errno));
    // As gRPC does: a port whose last connections have not run out is free.
    const int on = 1;
    (void)::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(fd.get(), where->get(), where->size) == 0 && ::listen(fd.get(), 1) == 0) {
      return absl::OkStatus();
    }
    const int error = errno;
    if (error == EADDRINUSE) return absl::AlreadyExistsError(std::strerror(error));
    if (error == EADDRNOTAVAIL) return absl::NotFoundError(std::strerror(error));
    if (error == EACCES) return absl::PermissionDeniedError(std::strerror(error));
    return absl::UnavailableError(std::strerror(error));
  }

  absl::StatusOr<absl::Duration> Connect(const std::string& address, uint16_t port,
                                         absl::Duration limit) override {
    const auto where = SockaddrOf(address, port);
    if (!where) return absl::UnavailableError("no numeric address");
    const FileDescriptor fd(
        ::socket(where->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid()) return absl::UnavailableError(std::strerror(errno));
    const absl::Time began = SteadyNow();
    if (::connect(fd.get(), where->get(), where->size) != 0) {
      if (errno != EINPROGRESS) return absl::UnavailableError(std::strerror(errno));
      pollfd ready{fd.get(), POLLOUT, 0};
      int count = 0;
      do {
        const absl::Duration rest = began + limit - SteadyNow();
        count = ::poll(&ready, 1,
                       static_cast<int>(std::max<int64_t>(0, absl::ToInt64Milliseconds(rest))));
      } while (count < 0 && errno == EINTR);
      if (count == 0) {
        return absl::DeadlineExceededError(
            absl::StrCat("no answer within ", absl::FormatDuration(limit)));
      }
      int error = 0;
      socklen_t size = sizeof error;
      if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
      if (error != 0) return absl::UnavailableError(std::strerror(error));
    }
    return SteadyNow() - began;
  }
};

}  // namespace

std::unique_ptr<HostNetwork> SystemNetwork() { return std::make_unique<RealNetwork>(); }

bool IsLoopbackNumber(const std::string& address) {
  return absl::StartsWith(address, "127.") || address == "::1";
}

bool IsWildcard(const std::string& address) { return address == "0.0.0.0" || address == "::"; }

absl::StatusOr<HostPort> ParseHostPort(const std::string& text) {
  const size_t colon = text.rfind(':');
  uint32_t port = 0;
  if (colon == std::string::npos || colon == 0 || text.find_first_of(" \t") != std::string::npos ||
      !absl::SimpleAtoi(text.substr(colon + 1), &port) || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is no HOST:PORT"));
  }
  HostPort result = {text.substr(0, colon), static_cast<uint16_t>(port)};
  if (result.host.size() > 2 && result.host.front() == '[' && result.host.back() == ']') {
    result.host = result.host.substr(1, result.host.size() - 2);
  }
  return result;
}

}  // namespace parley
