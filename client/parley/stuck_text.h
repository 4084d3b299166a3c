#ifndef PARLEY_CLIENT_PARLEY_STUCK_TEXT_H_
#define PARLEY_CLIENT_PARLEY_STUCK_TEXT_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/parley/wait_graph.h"

namespace parley {

// What `parley why-stuck` prints.
struct StuckReport {
  std::string job;
  std::string phase;                    // "training"; empty: not known
  std::vector<AskedProcess> processes;  // asked at `now`
  std::vector<RootCause> causes;        // the one to blame first
  std::string ended;                    // the job has ended: why; then nobody was asked
  absl::Duration longer_than;
  absl::Time now;
};

// A row for each wait of each process; the last line is `root cause: ...`.
std::string StuckText(const StuckReport& report);

// The same for scripts: one object on one line.
std::string StuckJson(const StuckReport& report);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_STUCK_TEXT_H_
