#ifndef PARLEY_CLIENT_PARLEY_PROGRESS_DISPLAY_H_
#define PARLEY_CLIENT_PARLEY_PROGRESS_DISPLAY_H_

#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/time/time.h"
#include "client/parley/progress.h"
#include "proto/coordinator.pb.h"

namespace parley {

// Shows a job's progress: on a terminal one line that changes, else a line every few seconds; a
// line of its own for each evaluation in both. Used by one thread.
class ProgressDisplay {
 public:
  // terminal: whether `out` is one.
  ProgressDisplay(std::FILE* out, bool terminal) : out_(out), terminal_(terminal) {}
  ~ProgressDisplay() { End(); }

  void Show(const GetStatusReply& status, absl::Time now);

  // A line between the others.
  void Say(const std::string& line);

  // The changing line becomes a line.
  void End();

 private:
  int Columns() const;

  std::FILE* const out_;
  const bool terminal_;
  TimeLeft left_;
  Phase phase_ = PHASE_UNSPECIFIED;
  uint64_t step_ = 0;
  int evaluations_ = 0;
  absl::Time shown_at_ = absl::InfinitePast();
  bool line_open_ = false;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_PROGRESS_DISPLAY_H_
