#include "client/reference/reference_peers.h"

#include <grpcpp/support/byte_buffer.h>

#include <utility>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "client/reference/value_wire.h"
#include "common/rpc/tensor_wire.h"

namespace parley {
namespace {

constexpr char kCallMethod[] = "/parley.RemoteReferences/Call";
constexpr char kFetchMethod[] = "/parley.RemoteReferences/Fetch";

template <class Reply>
Done<Reply> AsFromOwner(const Done<FromOwner>& done) {
  return [done](absl::StatusOr<Reply> reply) {
    if (!reply.ok()) return done(reply.status());
    done(FromOwner(*std::move(reply)));
  };
}

// Sends each kind of message its own way.
struct Sender {
  using Peer = GrpcPeer<RemoteReferences>;
  using Stub = Peer::Stub;

  void operator()(const OpenSessionRequest& request) const {
    peer.Call(&Stub::Open, request, deadline, AsFromOwner<OpenSessionReply>(done));
  }
  void operator()(const RenewSessionRequest& request) const {
    peer.Call(&Stub::Renew, request, deadline, AsFromOwner<RenewSessionReply>(done));
  }
  void operator()(const LeaveSessionRequest& request) const {
    peer.Call(&Stub::Leave, request, deadline, AsFromOwner<LeaveSessionReply>(done));
  }
  void operator()(const OutgoingCall& call) const {
    peer.CallBytes(kCallMethod, EncodeCall(call), deadline,
                   [done = done](const absl::StatusOr<grpc::ByteBuffer>& bytes) {
                     // The answer to a call has nothing in it.
                     if (!bytes.ok()) return done(bytes.status());
                     done(FromOwner(RemoteCallReply()));
                   });
  }
  void operator()(const ForkRequest& request) const {
    peer.Call(&Stub::Fork, request, deadline, AsFromOwner<ForkReply>(done));
  }
  void operator()(const DropRequest& request) const {
    peer.Call(&Stub::Drop, request, deadline, AsFromOwner<DropReply>(done));
  }
  void operator()(const FetchRequest& request) const {
    peer.CallBytes(kFetchMethod, EncodeMessage(request), deadline,
                   [done = done](const absl::StatusOr<grpc::ByteBuffer>& bytes) {
                     if (!bytes.ok()) return done(bytes.status());
                     absl::StatusOr<FetchedValue> fetched = DecodeFetched(*bytes);
                     if (!fetched.ok()) return done(fetched.status());
                     done(FromOwner(*std::move(fetched)));
                   });
  }

  const Peer& peer;
  const absl::Time deadline;
  const Done<FromOwner>& done;
};

}  // namespace

void ReferencePeers::Send(const ToOwner& message, absl::Duration patience, Done<FromOwner> done) {
  std::visit(Sender{PeerAt(message.address), absl::Now() + patience, done}, message.request);
}

ReferencePeers::Peer& ReferencePeers::PeerAt(const std::string& address) {
  absl::MutexLock lock(&mu_);
  std::unique_ptr<Peer>& peer = peers_[address];
  if (peer == nullptr) peer = std::make_unique<Peer>(address, calls_);
  return *peer;
}

}  // namespace parley
