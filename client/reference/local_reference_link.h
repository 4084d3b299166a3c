#ifndef PARLEY_CLIENT_REFERENCE_LOCAL_REFERENCE_LINK_H_
#define PARLEY_CLIENT_REFERENCE_LOCAL_REFERENCE_LINK_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/reference/reference_holder.h"
#include "client/reference/value_blocks.h"
#include "client/reference/value_wire.h"
#include "common/replies.h"
#include "common/shared_memory/local_socket.h"
#include "proto/local_reference.pb.h"

namespace parley {

// A process's way to another one on the same machine for calls with references: their values are
// copied once, into shared memory, where the other process reads them (docs/shared_memory.md). Made
// and ended by ReferencePeers. Calls are for any thread; answers run on the link's own, which ends
// calls at their deadlines, too.
//
// A call that the link cannot make (nobody is there, the message is too large, the other process
// has not read enough of what it was sent) is refused before it has begun: then there is gRPC.
class LocalReferenceLink {
 public:
  // Connects, and says who is meant; does not wait for the answer. Unavailable where no such
  // process is on this machine.
  static absl::StatusOr<std::shared_ptr<LocalReferenceLink>> Open(const std::string& address);

  // False: not begun, and `done` is as it was.
  bool Call(const OutgoingCall& call, absl::Time deadline, Done<FromOwner>& done);

  // Nothing is begun any more, and no answer runs: Join does not wait.
  bool ended() const { return ended_; }
  // Ends the connection; open calls end soon, as Unavailable. Any thread.
  void Close() { socket_->Shutdown(); }
  // Closes, and waits until no answer runs any more; never in an answer. Once.
  void Join() {
    Close();
    thread_.join();
  }

 private:
  struct OpenCall {
    absl::Time deadline;
    Done<FromOwner> done;
  };

  LocalReferenceLink(std::unique_ptr<LocalSocket> socket, std::string address);

  void Run();  // the thread
  absl::Status Handle(const LocalMessage& message);
  void EndCalls(const absl::Status& why, absl::Time before);
  absl::Time NextDeadline();
  // Copies what is large of the call into blocks. False: there is no room.
  bool Place(const std::vector<TensorSlice>& data, LocalCallRequest& request,
             std::map<uint32_t, std::shared_ptr<MemorySegment>>& blocks);
  void GiveBack(const LocalCallRequest& request);

  const std::unique_ptr<LocalSocket> socket_;
  const std::string address_;
  std::atomic<bool> ready_ = false;
  std::atomic<bool> ended_ = false;

  absl::Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t next_call_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<uint64_t, OpenCall> calls_ ABSL_GUARDED_BY(mu_);
  std::set<uint32_t> shown_ ABSL_GUARDED_BY(mu_);  // segments that the peer has
  ValueBlocks blocks_ ABSL_GUARDED_BY(mu_);

  std::thread thread_;
};

// The local name (LocalListener) of the process that serves references at this host:port.
std::string LocalReferenceName(const std::string& address);

}  // namespace parley

#endif  // PARLEY_CLIENT_REFERENCE_LOCAL_REFERENCE_LINK_H_
