#ifndef PARLEY_CLIENT_REFERENCE_LOCAL_REFERENCE_DOOR_H_
#define PARLEY_CLIENT_REFERENCE_LOCAL_REFERENCE_DOOR_H_

#include <atomic>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "client/reference/local_reference_guest.h"
#include "client/reference/reference_host.h"
#include "common/shared_memory/local_socket.h"

namespace parley {

// Where processes on the same machine call this one with values in shared memory
// (docs/shared_memory.md): a local name, and a thread for each that comes. Owned by a RemoteAgent.
class LocalReferenceDoor {
 public:
  // address: host:port at which the process serves references. Unavailable where the name is taken.
  static absl::StatusOr<std::unique_ptr<LocalReferenceDoor>> Open(
      const std::string& address, std::shared_ptr<ReferenceHost> host);

  // Lets nobody in any more, and ends the connections. Values that came stay readable.
  ~LocalReferenceDoor();

 private:
  struct Visit {
    std::unique_ptr<LocalReferenceGuest> guest;
    std::thread thread;
    std::atomic<bool> gone = false;
  };

  LocalReferenceDoor(std::string address, std::shared_ptr<ReferenceHost> host,
                     std::unique_ptr<LocalListener> listener);
  void Welcome();  // the listening thread

  const std::string address_;
  const std::shared_ptr<ReferenceHost> host_;
  const std::unique_ptr<LocalListener> listener_;
  absl::Mutex mu_;
  std::list<Visit> visits_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_REFERENCE_LOCAL_REFERENCE_DOOR_H_
