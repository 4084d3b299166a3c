#include "client/reference/reference_peers.h"

#include <grpcpp/support/byte_buffer.h>

#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "client/reference/direct_references.h"
#include "client/reference/value_wire.h"
#include "common/clock/steady_now.h"
#include "common/rpc/tensor_wire.h"
#include "common/usable_cores.h"

namespace parley {
namespace {

constexpr char kCallMethod[] = "/parley.RemoteReferences/Call";
constexpr char kFetchMethod[] = "/parley.RemoteReferences/Fetch";
constexpr char kFindMethod[] = "/parley.RemoteReferences/FindDirect";
// Fetched values that wait to be used again as memory for others.
constexpr size_t kKeptBytes = 256 << 20;

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

ReferencePeers::ReferencePeers(bool takes_direct, SharedCredentials credentials)
    : credentials_(std::move(credentials)),
      tls_(TlsContextFor(credentials_)),
      takes_direct_(takes_direct && tls_.ok()),
      buffers_(std::make_shared<ReceiveBuffers>(kKeptBytes)),
      loops_(LoopsFor(credentials_, /*plain=*/1, UsableCores())) {}

void ReferencePeers::Send(const ToOwner& message, absl::Duration patience, Done<FromOwner> done) {
  if (std::holds_alternative<OpenSessionRequest>(message.request)) OpenLink(message.address);
  if (const auto* const call = std::get_if<OutgoingCall>(&message.request); call != nullptr) {
    const std::shared_ptr<LocalReferenceLink> link = LinkTo(message.address);
    if (link != nullptr && link->Call(*call, SteadyNow() + patience, done)) return;
  }
  const absl::Time deadline = SteadyNow() + patience;
  if (SendDirectly(message, deadline, done)) return;
  std::visit(Sender{PeerAt(message.address), deadline, done}, message.request);
}

std::shared_ptr<LocalReferenceLink> ReferencePeers::LinkTo(const std::string& address) {
  absl::MutexLock lock(&mu_);
  const auto found = links_.find(address);
  return found == links_.end() || found->second->ended() ? nullptr : found->second;
}

void ReferencePeers::OpenLink(const std::string& address) {
  absl::MutexLock lock(&mu_);
  if (closed_) return;
  // Of all processes that have gone meanwhile.
  std::erase_if(links_, [](const auto& one) {
    if (!one.second->ended()) return false;
    one.second->Join();
    return true;
  });
  if (!links_.contains(address)) {
    absl::StatusOr<std::shared_ptr<LocalReferenceLink>> link = LocalReferenceLink::Open(address);
    if (link.ok()) links_[address] = *std::move(link);
  }
  // On this machine, too: for what is fetched, and for calls while shared memory is full.
  if (!takes_direct_ || direct_.contains(address)) return;
  if (DirectLoop* const loop = loops_.Next(); loop != nullptr) {
    direct_[address] = std::make_shared<DirectLink>(
        address, *loop, *tls_, buffers_,
        [this, address](absl::Time deadline, auto peer, auto done) {
          FindDirect(address, deadline, std::move(peer), std::move(done));
        });
  }
}

void ReferencePeers::FindDirect(const std::string& address, absl::Time deadline,
                                std::shared_ptr<std::string> peer, Done<FindDirectReply> done) {
  PeerAt(address).CallBytes(kFindMethod, EncodeMessage(FindDirectRequest()), deadline,
                            ParsingBytes(std::move(done)), std::move(peer));
}

std::shared_ptr<DirectLink> ReferencePeers::DirectTo(const std::string& address) {
  absl::MutexLock lock(&mu_);
  const auto found = direct_.find(address);
  return found == direct_.end() ? nullptr : found->second;
}

bool ReferencePeers::SendDirectly(const ToOwner& message, absl::Time deadline,
                                  Done<FromOwner>& done) {
  const auto* const call = std::get_if<OutgoingCall>(&message.request);
  const auto* const fetch = std::get_if<FetchRequest>(&message.request);
  const bool opens = std::holds_alternative<OpenSessionRequest>(message.request);
  if (call == nullptr && fetch == nullptr && !opens) return false;
  const std::shared_ptr<DirectLink> link = DirectTo(message.address);
  if (link == nullptr) return false;
  if (call != nullptr) return CallDirectly(*link, *call, deadline, done);
  if (fetch != nullptr) return FetchDirectly(*link, *fetch, deadline, done);
  link->Open();  // with the session, which goes by gRPC
  return false;
}

void ReferencePeers::Close(absl::Duration patience) {
  calls_->AwaitNone(patience);
  std::vector<std::shared_ptr<LocalReferenceLink>> links;
  std::map<std::string, std::shared_ptr<DirectLink>> direct;
  {
    absl::MutexLock lock(&mu_);
    closed_ = true;
    for (auto& [address, link] : links_) links.push_back(std::move(link));
    links_.clear();
    direct.swap(direct_);
  }
  for (const auto& link : links) link->Join();
  for (const auto& [address, link] : direct) link->Close();
  loops_.End();
  calls_->Close(absl::Seconds(5));
}

ReferencePeers::Peer& ReferencePeers::PeerAt(const std::string& address) {
  absl::MutexLock lock(&mu_);
  std::unique_ptr<Peer>& peer = peers_[address];
  if (peer == nullptr) peer = std::make_unique<Peer>(address, credentials_, calls_);
  return *peer;
}

}  // namespace parley
