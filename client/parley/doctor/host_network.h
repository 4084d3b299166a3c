#ifndef PARLEY_CLIENT_PARLEY_DOCTOR_HOST_NETWORK_H_
#define PARLEY_CLIENT_PARLEY_DOCTOR_HOST_NETWORK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace parley {

// What the checks ask of this machine's network: a seam, at which tests plant faults. Used by one
// thread.
class HostNetwork {
 public:
  virtual ~HostNetwork() = default;

  // The numeric addresses of a host. NotFound: it has none. DeadlineExceeded.
  virtual absl::StatusOr<std::vector<std::string>> Resolve(const std::string& host) = 0;

  // The numeric addresses of this machine.
  virtual std::vector<std::string> OwnAddresses() = 0;

  // Whether a server could listen there now. AlreadyExists: the port is in use. NotFound: no
  // address of this machine. PermissionDenied: the port is only for root. Unavailable: all else.
  virtual absl::Status TryListen(const std::string& address, uint16_t port) = 0;

  // How long a TCP connection took. Unavailable: it was refused, or there is no way.
  // DeadlineExceeded: nothing has answered.
  virtual absl::StatusOr<absl::Duration> Connect(const std::string& address, uint16_t port,
                                                 absl::Duration limit) = 0;
};

// The real one.
std::unique_ptr<HostNetwork> SystemNetwork();

// "127.0.0.1", "::1" and their like.
bool IsLoopbackNumber(const std::string& address);
// "0.0.0.0", "::": not an address but all of them.
bool IsWildcard(const std::string& address);

// host:port, taken apart: an IPv6 address stands in brackets there, and here without.
struct HostPort {
  std::string host;
  uint16_t port = 0;
};
// InvalidArgument where it is none; port 0 is one.
absl::StatusOr<HostPort> ParseHostPort(const std::string& text);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_DOCTOR_HOST_NETWORK_H_
