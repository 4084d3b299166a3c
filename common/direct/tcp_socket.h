#ifndef PARLEY_COMMON_DIRECT_TCP_SOCKET_H_
#define PARLEY_COMMON_DIRECT_TCP_SOCKET_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/file_descriptor.h"

namespace parley {

// TCP sockets of direct connections and of the door before gRPC: none blocks, nothing waits to be
// sent together with more, and a peer that does not acknowledge for 15 seconds is gone.

struct TcpListener {
  FileDescriptor fd;
  uint16_t port = 0;
};

// Listens on this port of `host`, a name or a number of this machine, as in --listen; 0: on any
// free one. Unavailable where that cannot be, with the system's reason.
absl::StatusOr<TcpListener> ListenTcp(const std::string& host, uint16_t port = 0);

// The next one that has come. NotFound: none. ResourceExhausted: the process has too many files
// open. Else a code that says that one is lost.
absl::StatusOr<FileDescriptor> AcceptTcp(const FileDescriptor& listener);

// Who is at the other end, while the connection stands: "10.0.0.1:7000", "[::1]:7000"; empty where
// the system does not say.
std::string PeerOf(const FileDescriptor& connection);

// Begins to connect to `port` on the host of `peer`, an address as gRPC writes it
// ("ipv4:10.0.0.1:7000", "ipv6:[::1]:7000"). InvalidArgument: it is none.
absl::StatusOr<FileDescriptor> ConnectTcp(const std::string& peer, uint16_t port);

}  // namespace parley

#endif  // PARLEY_COMMON_DIRECT_TCP_SOCKET_H_
