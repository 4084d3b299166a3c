#ifndef PARLEY_CLIENT_PARLEY_SCALE_TEXT_H_
#define PARLEY_CLIENT_PARLEY_SCALE_TEXT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "proto/coordinator.pb.h"

namespace parley {

// What `parley scale` says once the job wants so many workers: who goes, or who is to be started
// and how. `coordinator`: as the option named it; where that is a file, its folder is the job's.
std::string ScaleText(const SetWorkersReply& reply, uint32_t workers,
                      const std::string& coordinator);

// A member as `parley status` names it: "worker-3". INVALID_ARGUMENT where it is none.
absl::StatusOr<DrainRequest> DrainOf(const std::string& member);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_SCALE_TEXT_H_
