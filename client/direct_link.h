#ifndef PARLEY_CLIENT_DIRECT_LINK_H_
#define PARLEY_CLIENT_DIRECT_LINK_H_

#include <google/protobuf/message_lite.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/direct/direct_connection.h"
#include "common/direct/direct_loop.h"
#include "common/direct/receive_buffers.h"
#include "common/direct/tls_context.h"
#include "common/replies.h"
#include "common/tensor_slice.h"
#include "proto/direct.pb.h"

namespace parley {

// A process's direct connection to one server (docs/direct_connections.md), which is made again
// when it breaks. Thread-safe; held as shared. Answers run on the loop's thread, or on the one that
// ends the loop.
//
// A call that it cannot make (it does not stand, the message is too large, the server does not
// read) is refused before it has begun: then there is gRPC.
class DirectLink : public std::enable_shared_from_this<DirectLink> {
 public:
  // Asks the server by gRPC where it takes direct connections; sets *peer to the address that gRPC
  // has found it at ("ipv4:10.0.0.1:7000") before `done` runs.
  using Find = std::function<void(absl::Time deadline, std::shared_ptr<std::string> peer,
                                  Done<FindDirectReply> done)>;
  // The method's reply without its tensors, and these, with owners.
  struct Reply {
    std::string message;
    std::vector<TensorSlice> slices;
  };

  // address: for errors. The loop must outlive Close. tls: nullptr: it is not encrypted.
  DirectLink(std::string address, DirectLoop& loop, SharedTlsContext tls,
             std::shared_ptr<ReceiveBuffers> buffers, Find find)
      : address_(std::move(address)),
        loop_(loop),
        tls_(std::move(tls)),
        buffers_(std::move(buffers)),
        find_(std::move(find)) {}

  // Begins to connect, if it is not connected, and not just after it could not be.
  void Open();
  bool ready() const { return ready_; }

  // One attempt; false: not begun, and `done` is as it was. The slices' owners keep their bytes,
  // which nobody reads here any more when `done` runs. DeadlineExceeded at the deadline (or a
  // little later), Unavailable when the connection breaks.
  bool Call(const char* method, const google::protobuf::MessageLite& message,
            std::vector<TensorSlice> slices, absl::Time deadline, Done<Reply>& done);

  // When it returns nobody reads the bytes of a call that was begun before. One that has not been
  // sent takes the connection with it, and all calls that came after it.
  void DropUnsent();

  // Open calls end soon; none is begun any more.
  void Close();

 private:
  class Ear;
  struct OpenCall {
    absl::Time deadline;
    Done<Reply> done;
    uint64_t frame = 0;  // as sent; 0: not known yet
  };

  void OnFound(const std::string& peer, const absl::StatusOr<FindDirectReply>& found);
  // nullptr: it is not to be had.
  std::shared_ptr<DirectConnection> Connect(const std::string& peer, const FindDirectReply& found);
  // Says whom it means.
  void Greet(uint64_t token) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Rest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);  // before it tries again
  void OnAnswer(ReceivedFrame frame);
  void OnTick(DirectConnection& connection, absl::Time now);
  void OnEnd(const absl::Status& why);

  const std::string address_;
  DirectLoop& loop_;
  const SharedTlsContext tls_;
  const std::shared_ptr<ReceiveBuffers> buffers_;
  const Find find_;
  std::atomic<bool> ready_ = false;

  absl::Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  bool opening_ ABSL_GUARDED_BY(mu_) = false;  // or open
  absl::Time rest_until_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  absl::Duration rest_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<DirectConnection> connection_ ABSL_GUARDED_BY(mu_);
  uint64_t next_call_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<uint64_t, OpenCall> calls_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parley

#endif  // PARLEY_CLIENT_DIRECT_LINK_H_
