#include "client/parley/checkpoint_now.h"

#include "absl/strings/str_cat.h"

namespace parley {

std::optional<absl::StatusOr<std::string>> EndOfCheckpoint(const AskForCheckpointReply& asked,
                                                           const GetStatusReply& status) {
  // Of a later version; or of the last one, if no step was decided after the question.
  const bool is_over = status.phase() == FINISHED || status.phase() == FAILED;
  if (status.checkpoint_step() > asked.step() ||
      (is_over && status.checkpoint_step() == asked.step() && asked.step() != 0)) {
    return status.checkpoint_directory();
  }
  if (status.checkpoints_failed() > asked.failed()) {
    return absl::UnavailableError(
        absl::StrCat("the checkpoint failed, the job goes on: ", status.checkpoint_error(),
                     status.checkpoint_directory().empty() ? "" : "; the last whole one is ",
                     status.checkpoint_directory()));
  }
  if (is_over) {
    return absl::AbortedError(
        absl::StrCat("the job has ended without it: ", Phase_Name(status.phase()),
                     status.has_cause() ? ": " : "", status.cause().text()));
  }
  return std::nullopt;
}

}  // namespace parley
