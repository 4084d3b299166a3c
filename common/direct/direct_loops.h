#ifndef PARLEY_COMMON_DIRECT_DIRECT_LOOPS_H_
#define PARLEY_COMMON_DIRECT_DIRECT_LOOPS_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/direct/direct_loop.h"
#include "common/security/credentials.h"

namespace parley {

// How many loops one end's connections should be divided among, where the process may use so many
// cores. Encrypted (credentials with TLS), a loop computes for each byte, so that there may be one
// for each core; else one takes what a link of 25 Gbit/s brings, and `plain` are enough.
size_t LoopsFor(const SharedCredentials& credentials, size_t plain, size_t cores);

// The loops of the connections that a process makes. Thread-safe.
class DirectLoops {
 public:
  // most: at least 1.
  explicit DirectLoops(size_t most) : most_(most) {}

  // For the next connection: they have turns. Loops are started as they are wanted. nullptr: the
  // system gives none, or End was called.
  DirectLoop* Next();
  // Ends all of them, with what they watch. Not on a thread of theirs.
  void End();

 private:
  const size_t most_;
  absl::Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  size_t next_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::unique_ptr<DirectLoop>> loops_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parley

#endif  // PARLEY_COMMON_DIRECT_DIRECT_LOOPS_H_
