#ifndef PARLEY_COMMON_BOUNDED_WRITER_H_
#define PARLEY_COMMON_BOUNDED_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"

namespace parley {

// Writes to a file descriptor for whoever must not wait for what lies behind it: a log on a mount
// whose server is gone, a pipe that nobody reads. A thread of its own is in the kernel then, and
// may stay there. Thread-safe.
class BoundedWriter {
 public:
  // Of `fd`, which must stay open as long as the process. Starts its thread with the first text.
  explicit BoundedWriter(int fd);
  BoundedWriter(const BoundedWriter&) = delete;
  BoundedWriter& operator=(const BoundedWriter&) = delete;
  // What is not written by then is not written any more.
  ~BoundedWriter();

  // To be written in the order of these calls, each text by one write; what a write does not take
  // is lost. Does not wait. False: too much waits already, and the text is dropped, unless it is to
  // be written `whatever_waits`.
  bool Add(std::string text, bool whatever_waits = false);

  // Whether all that was added before is written; waits for it, this long at most.
  bool Await(absl::Duration patience);

  // Whether an Await was in vain, and what it was about still is not written.
  bool is_late() const;

 private:
  struct Shared;  // with the thread, which may outlive this object
  static void Run(Shared& shared);

  const std::shared_ptr<Shared> shared_;
};

}  // namespace parley

#endif  // PARLEY_COMMON_BOUNDED_WRITER_H_
