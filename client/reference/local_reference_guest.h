#ifndef PARLEY_CLIENT_REFERENCE_LOCAL_REFERENCE_GUEST_H_
#define PARLEY_CLIENT_REFERENCE_LOCAL_REFERENCE_GUEST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/reference/reference_host.h"
#include "common/rpc/rpc_observer.h"
#include "common/shared_memory/local_door.h"
#include "common/shared_memory/local_slices.h"
#include "common/shared_memory/local_socket.h"
#include "common/tensor_slice.h"
#include "proto/local_reference.pb.h"

namespace parley {

// This process's end of a connection with one that calls it from the same machine
// (proto/local_reference.proto). Values stand where the peer has put them; when the last that has
// one lets go of it the peer is told. What the peer sends, however wrong, costs it the connection
// and no more.
//
// Run, or Handle, is one thread's.
class LocalReferenceGuest : public LocalVisit {
 public:
  LocalReferenceGuest(std::string address, std::shared_ptr<ReferenceHost> host,
                      std::unique_ptr<LocalSocket> socket, RpcObserver observer = {})
      : address_(std::move(address)),
        host_(std::move(host)),
        observer_(std::move(observer)),
        peer_(std::make_shared<Peer>(std::move(socket))) {}

  // Where processes on the same machine call this one. address: host:port at which it serves
  // references. Values that came stay readable when the door is closed. `observer` may be
  // empty; it outlives the last answer. Unavailable where the name is taken.
  static absl::StatusOr<std::unique_ptr<LocalDoor>> OpenDoor(const std::string& address,
                                                             std::shared_ptr<ReferenceHost> host,
                                                             RpcObserver observer);

  void Run() override;
  // Does one. Not OK: the connection is over.
  absl::Status Handle(LocalMessage message);
  void Close() override { peer_->Close(); }

 private:
  // What answers and values hold, which come to their ends on any thread, also when the connection
  // is over. Not the host, which holds values.
  class Peer {
   public:
    explicit Peer(std::unique_ptr<LocalSocket> socket) : socket_(std::move(socket)) {}
    absl::StatusOr<LocalMessage> Receive() { return socket_->Receive(absl::InfiniteFuture()); }
    void Answer(uint64_t call, const absl::Status& status);
    // Nobody here reads this block any more.
    void Read(uint32_t segment);
    void Close() { socket_->Shutdown(); }

   private:
    void Send(LocalCallReply& reply) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

    const std::unique_ptr<LocalSocket> socket_;
    absl::Mutex mu_;
    std::vector<uint32_t> read_ ABSL_GUARDED_BY(mu_);  // the peer has not been told
  };

  absl::Status Call(LocalCallRequest request);
  absl::StatusOr<std::vector<TensorSlice>> DataOf(LocalCallRequest& request);

  const std::string address_;
  const std::shared_ptr<ReferenceHost> host_;
  const RpcObserver observer_;
  const std::shared_ptr<Peer> peer_;

  // Handle's.
  bool welcome_ = false;
  PeerSegments segments_;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_REFERENCE_LOCAL_REFERENCE_GUEST_H_
