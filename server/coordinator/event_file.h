#ifndef PARLEY_SERVER_COORDINATOR_EVENT_FILE_H_
#define PARLEY_SERVER_COORDINATOR_EVENT_FILE_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/appended_file.h"
#include "common/file_system.h"
#include "common/log.h"
#include "proto/tensorboard.pb.h"
#include "server/coordinator/course.h"

namespace parley {

// A record of a TFRecord file: length, its masked CRC-32C, the bytes, theirs (tensorflow/core/lib/
// io/record_writer.h).
std::string TfRecord(std::string_view bytes);

// What TensorBoard shows of the event, if anything: the scalars of a step or an evaluation, and
// that all went back, so that the steps that are done again are not shown twice.
std::optional<tensorboard::Event> ToTensorboard(const CourseEvent& event);

// The job's scalars as an event file in a folder that TensorBoard is given. A process begins a file
// of its own, and another one after an error, since nothing behind a torn record is read. A disk
// that refuses points costs these points and one warning. Owned by Reporter, on main's thread.
class EventFile {
 public:
  // `files` and `log` must outlive it.
  EventFile(FileSystem& files, std::string folder, Log& log)
      : files_(files), folder_(std::move(folder)), log_(log) {}

  void Add(const std::vector<CourseEvent>& events);

 private:
  absl::Status Append(const std::string& records, absl::Time now);
  // A file of its own in the folder, whose name sorts after those of earlier ones.
  absl::StatusOr<AppendedFile> Create(absl::Time now);

  FileSystem& files_;
  const std::string folder_;
  Log& log_;
  std::optional<AppendedFile> file_;
  bool failing_ = false;  // and it was told
};

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_EVENT_FILE_H_
