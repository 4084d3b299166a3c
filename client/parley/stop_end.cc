#include "client/parley/stop_end.h"

#include "absl/strings/str_cat.h"

namespace parley {

std::optional<absl::StatusOr<std::string>> EndOfStop(const StopReply& told,
                                                     const GetStatusReply& status) {
  if (status.phase() == FINISHED) return status.checkpoint_directory();
  if (status.phase() != FAILED) return std::nullopt;
  if (!status.checkpoint_directory().empty() && status.checkpoint_step() >= told.step()) {
    return status.checkpoint_directory();
  }
  return absl::AbortedError(
      absl::StrCat("the job has ended without a new checkpoint: ", status.cause().text()));
}

}  // namespace parley
