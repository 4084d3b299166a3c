#ifndef PARLEY_SERVER_PARAMETER_SHARD_LOCAL_DOOR_H_
#define PARLEY_SERVER_PARAMETER_SHARD_LOCAL_DOOR_H_

#include <atomic>
#include <list>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/shared_memory/local_socket.h"
#include "server/parameter_shard/local_guest.h"

namespace parley {

// Where workers on the same machine reach a shard through shared memory (docs/shared_memory.md): a
// local name, and a thread for each that comes. Owned by main.
class LocalDoor {
 public:
  // Opens it; all that the options name must outlive it. Unavailable where the name is taken.
  static absl::StatusOr<std::unique_ptr<LocalDoor>> Open(LocalGuest::Options options);

  // Lets nobody in any more, and ends the connections. Answers of parked calls may still come, and
  // are dropped.
  ~LocalDoor();

 private:
  struct Visit {
    std::shared_ptr<LocalGuest> guest;
    std::thread thread;
    std::atomic<bool> gone = false;
  };

  LocalDoor(LocalGuest::Options options, std::unique_ptr<LocalListener> listener);
  void Welcome();  // the listening thread

  const LocalGuest::Options options_;
  const std::unique_ptr<LocalListener> listener_;
  absl::Mutex mu_;
  std::list<Visit> visits_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_LOCAL_DOOR_H_
