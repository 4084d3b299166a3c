#ifndef PARLEY_SERVER_PARAMETER_SHARD_LOCAL_GUEST_H_
#define PARLEY_SERVER_PARAMETER_SHARD_LOCAL_GUEST_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/rpc_observer.h"
#include "common/shared_memory/local_door.h"
#include "common/shared_memory/local_slices.h"
#include "common/shared_memory/local_socket.h"
#include "common/shared_memory/segment_heap.h"
#include "proto/local_link.pb.h"
#include "server/parameter_shard/locked_shard.h"

namespace parley {

// The shard's end of a connection with one worker on the same machine: does its Push, Pull and
// Complete (proto/local_link.proto), in the order in which they come. What the peer sends, however
// wrong, costs it the connection and no more.
//
// Run, or Handle, is one thread's. Replies come on any thread, and may come when the door has gone:
// they hold this as shared.
class LocalGuest : public LocalVisit, public std::enable_shared_from_this<LocalGuest> {
 public:
  // All must outlive the guest's last reply.
  struct Options {
    std::string address;  // host:port that the shard serves
    LockedShard* shard = nullptr;
    const SegmentHeap* heap = nullptr;  // where the shard's values lie
    RpcObserver observer;               // may be empty
  };

  LocalGuest(const Options& options, std::unique_ptr<LocalSocket> socket)
      : options_(options), socket_(std::move(socket)) {}

  // Where workers on the same machine reach the shard: to be closed before what the options name is
  // gone. Answers of parked calls may come after that, and are dropped. Unavailable where the name
  // is taken.
  static absl::StatusOr<std::unique_ptr<LocalDoor>> OpenDoor(Options options);

  void Run() override;
  // Does one. Not OK: the connection is over.
  absl::Status Handle(LocalMessage message);
  // What the peer still reads may be written again.
  void Close() override;

 private:
  absl::Status Greet(const LocalRequest& request);
  absl::Status Push(const LocalRequest& request, CallTime time);
  void Complete(const LocalRequest& request, CallTime time);
  void Pull(const LocalRequest& request, CallTime time);

  // Sets the reply, and keeps the pins until the peer has read. Unimplemented where something lies
  // where it cannot be shown.
  absl::Status Show(uint64_t call, const PulledVersion& pulled, LocalReply& reply,
                    std::vector<SegmentHeap::Place>& places);
  void Answer(const char* method, uint64_t call, CallTime time, const absl::Status& status,
              LocalReply& reply, const std::vector<SegmentHeap::Place>& places = {});
  absl::Status Send(LocalReply& reply, const std::vector<SegmentHeap::Place>& places);

  const Options options_;
  const std::unique_ptr<LocalSocket> socket_;

  // Handle's.
  bool welcome_ = false;
  PeerSegments segments_;

  absl::Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::set<uint32_t> shown_ ABSL_GUARDED_BY(mu_);  // segments that the peer has
  // What the peer reads, by call: not more than some, then the oldest go.
  std::map<uint64_t, std::vector<PinnedBuffer>> held_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_LOCAL_GUEST_H_
