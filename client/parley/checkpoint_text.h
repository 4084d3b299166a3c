#ifndef PARLEY_CLIENT_PARLEY_CHECKPOINT_TEXT_H_
#define PARLEY_CLIENT_PARLEY_CHECKPOINT_TEXT_H_

#include <string>

#include "proto/checkpoint.pb.h"

namespace parley {

// What `parley checkpoint inspect` tells: step, position, files, and a row for each tensor. Lines,
// each ended. folder: of the step.
std::string CheckpointText(const std::string& folder, const Manifest& manifest);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_CHECKPOINT_TEXT_H_
