#ifndef PARLEY_CLIENT_PARLEY_CHILD_PROCESS_H_
#define PARLEY_CLIENT_PARLEY_CHILD_PROCESS_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace parley {

// How a process ended: by itself with an exit status, or by a signal (0: by itself).
struct ChildExit {
  int code = 0;
  int signal = 0;

  bool clean() const { return code == 0 && signal == 0; }
};

// "ended with exit status 2", "was ended by SIGKILL".
std::string Describe(const ChildExit& exit);

// A program that ends when its parent does: the kernel sends it SIGKILL when the thread that
// started it goes, so start it from the main thread only. It leads a process group of its own (the
// terminal's SIGINT is for the parent alone) and has no signal blocked; stdin is /dev/null. Used by
// that thread. The destructor neither ends the process nor waits for it.
class ChildProcess {
 public:
  // File descriptors for the child, which stay the caller's; -1: /dev/null.
  struct Files {
    int out = -1;
    int err = -1;
    int kept = -1;  // stays open in the child under the same number
  };

  // arguments[0]: the program's path. NotFound or PermissionDenied, with the path, where it cannot
  // be started.
  static absl::StatusOr<ChildProcess> Start(const std::vector<std::string>& arguments, Files files);

  pid_t pid() const { return pid_; }

  // The exit, once the process has ended. Does not wait.
  std::optional<ChildExit> TryWait();

  // To its whole process group; nothing once the exit was seen.
  void Signal(int signal);

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}

  pid_t pid_;
  std::optional<ChildExit> exit_;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_CHILD_PROCESS_H_
