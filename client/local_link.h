#ifndef PARLEY_CLIENT_LOCAL_LINK_H_
#define PARLEY_CLIENT_LOCAL_LINK_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/shard_client.h"
#include "client/visitors.h"
#include "common/shared_memory/local_slices.h"
#include "common/shared_memory/local_socket.h"
#include "common/shared_memory/segment_heap.h"
#include "proto/local_link.pb.h"

namespace parley {

// A worker's connection to a shard on the same machine (docs/shared_memory.md): calls whose tensors
// lie in shared memory, and only their places are sent. Made by a connector, which ends it (Join);
// used by one client. Calls are for any thread; answers run one at a time, on the link's own thread
// or on a visitor's. Its own ends them at their deadlines too.
//
// A call that the link cannot make (it is not ready, or has ended; tensors lie elsewhere; the
// message is too large) is refused before it has begun: then there is gRPC.
class LocalLink final : public Visitors {
 public:
  // Connects, and introduces itself; does not wait for the answer. heap: of the memory that may be
  // shown; must outlive it. Unavailable where no such shard is on this machine.
  static absl::StatusOr<std::shared_ptr<LocalLink>> Open(const std::string& address,
                                                         const SegmentHeap* heap);
  // The shard has answered, and the connection stands.
  bool ready() const { return ready_; }
  // Nothing comes any more, and no thread of it runs anything but its end.
  bool ended() const { return ended_; }

  // False: not begun, and `done` is as it was.
  bool Push(const TensorPush& push, absl::Time deadline, Done<PushReply>& done);
  bool Complete(const CompleteRequest& request, absl::Time deadline, Done<CompleteReply>& done);
  // Unimplemented: the shard has begun it, but cannot give these slices so.
  bool Pull(const PullRequest& request, absl::Time deadline, Done<TensorPull>& done);

  bool Visit() override;
  void Leave() override;

  // Ends the connection; open calls end soon, as Unavailable. Any thread.
  void Close() { socket_->Shutdown(); }
  // Closes, and waits until no answer runs any more: the maker's, once, and never in an answer.
  // After it nobody's reference is the last that the thread needs.
  void Join() {
    Close();
    thread_.join();
  }

 private:
  using OnReply = std::function<void(absl::StatusOr<LocalReply>)>;
  struct Call {
    absl::Time deadline;
    OnReply on_reply;  // null: it was given up, and its answer is still to come
  };
  // Answers of Pull that somebody still reads tell of their end here; outlives the link.
  struct Reads {
    absl::Mutex mu;
    std::vector<uint64_t> over ABSL_GUARDED_BY(mu);
  };

  LocalLink(std::unique_ptr<LocalSocket> socket, std::string address, const SegmentHeap* heap);

  // Gives the request a number and sends it. False: not sent; `on_reply` will not run.
  bool Send(LocalRequest& request, absl::Time deadline, OnReply on_reply,
            const std::vector<SegmentHeap::Place>& places);
  void Run();  // the thread
  // Whether somebody looks in who need not be helped; sleeps for as long as that can be.
  bool StandBack();
  absl::Status Handle(LocalMessage message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  absl::StatusOr<TensorPull> Assemble(LocalReply reply) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  void EndCalls(const absl::Status& why, absl::Time before) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  absl::Time NextDeadline();

  const std::unique_ptr<LocalSocket> socket_;
  const std::string address_;
  const SegmentHeap* const heap_;
  const std::shared_ptr<Reads> reads_ = std::make_shared<Reads>();
  std::atomic<bool> ready_ = false;
  std::atomic<bool> ended_ = false;

  // Held by whoever receives, and while answers run; before mu_.
  absl::Mutex turn_;
  // The shard's, by number.
  PeerSegments segments_ ABSL_GUARDED_BY(turn_);

  std::atomic<int64_t> visited_ = 0;  // nanoseconds of SteadyNow; 0: whoever was there has left
  absl::Mutex watch_mu_;
  bool left_ ABSL_GUARDED_BY(watch_mu_) = false;

  absl::Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t next_call_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<uint64_t, Call> calls_ ABSL_GUARDED_BY(mu_);
  std::set<uint32_t> shown_ ABSL_GUARDED_BY(mu_);  // segments that the shard has

  std::thread thread_;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_LOCAL_LINK_H_
