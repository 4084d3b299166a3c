#ifndef PARLEY_SERVER_COORDINATOR_HISTORY_H_
#define PARLEY_SERVER_COORDINATOR_HISTORY_H_

#include <optional>
#include <string>
#include <vector>

#include "common/appended_file.h"
#include "common/log.h"
#include "server/coordinator/course.h"

namespace parley {

// One line of JSON for the event, without its end (docs/history.md). A number that is none, as the
// loss of a job that diverges, is null.
std::string HistoryLine(const CourseEvent& event);

// The job's history.jsonl. Coordinators of the same job add to it one after the other; what one of
// them has left in its last line when it died is ended by the next. A disk that refuses lines costs
// these lines and one warning, never the job. Owned by Reporter, on main's thread.
class History {
 public:
  // `log` must outlive it.
  History(std::string path, Log& log) : path_(std::move(path)), log_(log) {}

  void Add(const std::vector<CourseEvent>& events);

 private:
  absl::Status Append(const CourseEvent& event);

  const std::string path_;
  Log& log_;
  std::optional<AppendedFile> file_;
  bool failing_ = false;  // and it was told
};

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_HISTORY_H_
