#ifndef PARLEY_CLIENT_PARLEY_CHILDREN_H_
#define PARLEY_CLIENT_PARLEY_CHILDREN_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/parley/child_process.h"
#include "client/parley/signal_inbox.h"

namespace parley {

// The processes that `parley run` has started, each with its stderr and stdout in a file. Whatever
// way the object goes, they are gone afterwards. Used by the main thread.
class Children {
 public:
  struct Child {
    std::string name;  // "worker-1"
    std::string log;   // path of the file with both
    ChildProcess process;
    std::optional<ChildExit> exit;
  };

  Children() = default;
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  ~Children();  // ends them without grace

  // Starts a program; its stderr and stdout go to a new file `log`.
  absl::Status Start(const std::string& name, const std::string& log,
                     const std::vector<std::string>& arguments);

  // Notes who has ended; the indices of those that had not at the call before.
  std::vector<size_t> Reap();

  // To those that run and that `whom` names.
  void Signal(int signal, const std::function<bool(const std::string& name)>& whom);

  // SIGINT, which our programs end at once by, to all that run, and SIGKILL to those that still do
  // after `grace`. Returns when all are gone: whether one had to be killed. A signal that comes
  // meanwhile ends the grace.
  bool End(absl::Duration grace, SignalInbox& signals);

  bool AllEnded() const;
  const std::vector<Child>& all() const { return children_; }
  void SetNameAndLog(size_t index, const std::string& name, const std::string& log);

 private:
  std::vector<Child> children_;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_CHILDREN_H_
