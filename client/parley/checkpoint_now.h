#ifndef PARLEY_CLIENT_PARLEY_CHECKPOINT_NOW_H_
#define PARLEY_CLIENT_PARLEY_CHECKPOINT_NOW_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/coordinator.pb.h"

namespace parley {

// Whether a status shows the end of a checkpoint that was asked for with this answer: its folder;
// why there is none (UNAVAILABLE: it failed, and the job goes on; ABORTED: the job has ended
// without); nothing yet.
std::optional<absl::StatusOr<std::string>> EndOfCheckpoint(const AskForCheckpointReply& asked,
                                                           const GetStatusReply& status);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_CHECKPOINT_NOW_H_
