#ifndef PARLEY_COMMON_SHARED_MEMORY_LOCAL_DOOR_H_
#define PARLEY_COMMON_SHARED_MEMORY_LOCAL_DOOR_H_

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/shared_memory/local_socket.h"

namespace parley {

// This process's end of a connection that came in through a LocalDoor.
class LocalVisit {
 public:
  virtual ~LocalVisit() = default;
  // Reads and does what the peer asks for, until it, or Close, ends that. A thread of its own.
  virtual void Run() = 0;
  virtual void Close() = 0;  // any thread
};

// Where processes on the same machine reach this one (docs/shared_memory.md): a local name, and a
// thread for each that comes.
class LocalDoor {
 public:
  using Host = std::function<std::shared_ptr<LocalVisit>(std::unique_ptr<LocalSocket>)>;

  // Opens it; `host` is called on a thread of the door's. Unavailable where the name is taken.
  static absl::StatusOr<std::unique_ptr<LocalDoor>> Open(const std::string& name, Host host);

  // Lets nobody in any more, and ends the connections.
  ~LocalDoor();

 private:
  struct Guest {
    std::shared_ptr<LocalVisit> visit;
    std::thread thread;
    std::atomic<bool> gone = false;
  };

  LocalDoor(Host host, std::unique_ptr<LocalListener> listener);
  void Welcome();  // the listening thread

  const Host host_;
  const std::unique_ptr<LocalListener> listener_;
  absl::Mutex mu_;
  std::list<Guest> guests_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace parley

#endif  // PARLEY_COMMON_SHARED_MEMORY_LOCAL_DOOR_H_
