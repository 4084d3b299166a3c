#ifndef PARLEY_CLIENT_PARLEY_STOP_END_H_
#define PARLEY_CLIENT_PARLEY_STOP_END_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/coordinator.pb.h"

namespace parley {

// Whether a status shows the end of a job that was told to stop with this answer: the folder from
// which it can go on (or of the checkpoint of a job that finished meanwhile; empty if it wrote
// none); ABORTED with the first cause if no checkpoint is as new as the answer's step; nothing yet.
std::optional<absl::StatusOr<std::string>> EndOfStop(const StopReply& told,
                                                     const GetStatusReply& status);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_STOP_END_H_
