#ifndef PARLEY_CLIENT_REFERENCE_REFERENCE_PEERS_H_
#define PARLEY_CLIENT_REFERENCE_REFERENCE_PEERS_H_

#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/direct_link.h"
#include "client/grpc_peer.h"
#include "client/open_calls.h"
#include "client/reference/local_reference_link.h"
#include "client/reference/reference_holder.h"
#include "common/direct/direct_loops.h"
#include "common/direct/receive_buffers.h"
#include "common/direct/tls_context.h"
#include "common/replies.h"
#include "common/security/credentials.h"
#include "proto/remote_reference.grpc.pb.h"

namespace parley {

// The processes that this one sends messages of references to: by gRPC; calls to those on this
// machine through shared memory, and what carries values to others over direct connections.
// Thread-safe.
class ReferencePeers {
 public:
  // takes_direct: false where all but what goes through shared memory is to go by gRPC.
  // credentials: the job's.
  ReferencePeers(bool takes_direct, SharedCredentials credentials);
  ~ReferencePeers() { Close(absl::ZeroDuration()); }

  // One attempt. `done` runs on a thread of gRPC, or here if this process is ending.
  void Send(const ToOwner& message, absl::Duration patience, Done<FromOwner> done);

  // Waits until what was sent has been answered, at most so long; then ends the rest, and sends
  // nothing more.
  void Close(absl::Duration patience);

 private:
  using Peer = GrpcPeer<RemoteReferences>;

  Peer& PeerAt(const std::string& address);
  // nullptr: that process is not on this machine, or the link to it has broken.
  std::shared_ptr<LocalReferenceLink> LinkTo(const std::string& address);
  // With each session, so that a process that was started again is found.
  void OpenLink(const std::string& address);
  // nullptr: there is none.
  std::shared_ptr<DirectLink> DirectTo(const std::string& address);
  void FindDirect(const std::string& address, absl::Time deadline,
                  std::shared_ptr<std::string> peer, Done<FindDirectReply> done);
  // False: not begun.
  bool SendDirectly(const ToOwner& message, absl::Time deadline, Done<FromOwner>& done);

  const SharedCredentials credentials_;
  const absl::StatusOr<SharedTlsContext> tls_;
  const bool takes_direct_;
  const std::shared_ptr<OpenCalls> calls_ = std::make_shared<OpenCalls>();
  absl::Mutex mu_;
  // Channels live until no call is left, so that none is destroyed by a thread of its own
  // callbacks.
  std::map<std::string, std::unique_ptr<Peer>> peers_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::map<std::string, std::shared_ptr<LocalReferenceLink>> links_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::shared_ptr<DirectLink>> direct_ ABSL_GUARDED_BY(mu_);
  const std::shared_ptr<ReceiveBuffers> buffers_;
  DirectLoops loops_;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_REFERENCE_REFERENCE_PEERS_H_
