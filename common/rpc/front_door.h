#ifndef PARLEY_COMMON_RPC_FRONT_DOOR_H_
#define PARLEY_COMMON_RPC_FRONT_DOOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/direct/direct_loop.h"
#include "common/file_descriptor.h"
#include "common/rpc/refusals.h"

namespace parley {

// The listening socket before a gRPC server. Whoever connects has to begin as a client of gRPC does
// before the server hears of him at all: until then he costs this process one open file, of which
// there are so many at most. gRPC's own listener gives everybody memory at once, and stops
// accepting for good where files run out (seen with gRPC 1.51).
class FrontDoor {
 public:
  struct Options {
    std::string host;  // as in --listen
    uint16_t port = 0;
    bool tls = false;  // whether a client begins with a handshake or with HTTP/2's preface
    // Connections that have not begun; the one that came first makes room for another one.
    size_t most_waiting = 256;
    absl::Duration patience = absl::Seconds(10);
    // Why one was turned away, kGarbage or kIdle, and his address. On the door's thread; may be
    // empty.
    Refusals::Told refused;
  };
  // Takes over the connection from `peer`. On the door's thread; must not wait.
  using Admit = std::function<void(FileDescriptor connection, const std::string& peer)>;

  // Listens; nobody is let in. Unavailable where it cannot, with the system's reason.
  static absl::StatusOr<std::unique_ptr<FrontDoor>> Listen(Options options);
  // Whoever waits is turned away; `admit` does not run any more.
  ~FrontDoor();

  uint16_t port() const { return port_; }

  // Once. Unavailable: the system gives no thread or no files.
  absl::Status Open(Admit admit);

 private:
  class Threshold;
  class Visitor;

  FrontDoor(Options options, FileDescriptor listener, uint16_t port)
      : options_(std::move(options)), listener_(std::move(listener)), port_(port) {}

  void Refuse(absl::string_view why, const std::string& peer) const {
    if (options_.refused) options_.refused(why, peer);
  }

  const Options options_;
  FileDescriptor listener_;  // until it is open
  const uint16_t port_;
  Admit admit_;
  std::unique_ptr<DirectLoop> loop_;  // last: its thread uses the rest
};

}  // namespace parley

#endif  // PARLEY_COMMON_RPC_FRONT_DOOR_H_
