#ifndef PARLEY_COMMON_DIRECT_DIRECT_LOOP_H_
#define PARLEY_COMMON_DIRECT_DIRECT_LOOP_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/file_descriptor.h"

namespace parley {

// A thread that watches sockets (epoll) and does what is to be done when one is ready.
class DirectLoop {
 public:
  // A socket that is watched. The loop holds it until it is over.
  class Watched {
   public:
    virtual ~Watched() = default;
    virtual int fd() const = 0;
    // On the loop's thread. ready: as epoll tells. False: it is over, and is watched no more.
    virtual bool OnReady(uint32_t ready) = 0;
    // Now and then, on the loop's thread.
    virtual void OnTick(absl::Time now) = 0;
    // The loop ends, and will call nothing more. Not on its thread.
    virtual void OnStop() = 0;
  };

  static absl::StatusOr<std::unique_ptr<DirectLoop>> Start();
  // Ends what it watches. Not on its thread.
  ~DirectLoop();

  // From now on, for what comes (EPOLLIN). Any thread. False: the loop is ending, or the system
  // does not let it.
  bool Watch(std::shared_ptr<Watched> watched);

  // What one that is watched is to be told of besides its end: EPOLLIN, EPOLLOUT. Any thread;
  // nothing happens where it is over.
  void Want(const Watched& watched, uint32_t events);

 private:
  DirectLoop(FileDescriptor epoll, FileDescriptor wake);
  void Run();
  void TickAll();

  const FileDescriptor epoll_;
  const FileDescriptor wake_;  // an eventfd: the loop ends
  std::atomic<bool> ending_ = false;
  absl::Mutex mu_;
  std::map<Watched*, std::shared_ptr<Watched>> watched_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace parley

#endif  // PARLEY_COMMON_DIRECT_DIRECT_LOOP_H_
