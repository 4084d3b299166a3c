#ifndef PARLEY_COMMON_DIRECT_DIRECT_SERVER_H_
#define PARLEY_COMMON_DIRECT_DIRECT_SERVER_H_

#include <google/protobuf/message_lite.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/direct/direct_connection.h"
#include "common/direct/direct_loop.h"
#include "common/direct/receive_buffers.h"
#include "common/direct/tcp_socket.h"
#include "common/direct/tls_context.h"
#include "common/rpc/refusals.h"
#include "common/security/credentials.h"
#include "common/tensor_slice.h"
#include "proto/direct.pb.h"

namespace parley {

// Takes direct connections (docs/direct_connections.md) and has their calls done. What a peer
// sends, however wrong, costs it the connection and no more.
class DirectServer {
 public:
  // How a call is answered: once, on any thread, never under a lock of the callee; also when the
  // server has gone. `reply` is read where the status is OK; the slices need owners.
  using Answer =
      std::function<void(const absl::Status& status, const google::protobuf::MessageLite& reply,
                         std::vector<TensorSlice> slices)>;
  struct Call {
    std::string message;              // the request, without its tensors
    std::vector<TensorSlice> slices;  // with owners
    absl::Duration patience;          // at most an hour
    Answer answer;
  };
  // On a thread of the server's; must not wait. Not OK: the call is no such call, and the
  // connection ends.
  using Method = std::function<absl::Status(Call call)>;
  using Methods = std::map<std::string, Method>;  // by name, "Push"

  // Whom it lets in.
  struct Entry {
    SharedCredentials credentials;  // the job's; with TLS connections are TLS
    // Told, on a thread of the server's, why a stranger was refused (kWhyRefused), and his address;
    // must not wait; may be empty.
    Refusals::Told refused;
  };

  // host: on which it listens, at a free port. Methods are called on so many threads; those of one
  // connection in the order in which they come. Unavailable where it cannot listen; Internal:
  // OpenSSL does not take the credentials.
  static absl::StatusOr<std::unique_ptr<DirectServer>> Start(const std::string& host,
                                                             size_t threads, Methods methods,
                                                             const Entry& entry = {});
  // Ends the connections; no method is called any more.
  ~DirectServer();

  // How others find it.
  FindDirectReply Found() const;

  // That have come until now; any thread.
  uint64_t calls() const { return calls_; }

 private:
  class Door;
  class Guest;

  DirectServer(uint16_t port, Methods methods, SharedTlsContext tls, Refusals::Told refused);

  const uint16_t port_;
  const uint64_t token_;
  const Methods methods_;
  const SharedTlsContext tls_;
  const Refusals::Told refused_;
  const std::shared_ptr<ReceiveBuffers> buffers_;
  std::atomic<uint64_t> calls_ = 0;
  std::vector<std::unique_ptr<DirectLoop>> loops_;  // last: their threads use the rest
};

}  // namespace parley

#endif  // PARLEY_COMMON_DIRECT_DIRECT_SERVER_H_
