#ifndef PARLEY_CLIENT_PARLEY_PROGRAMS_H_
#define PARLEY_CLIENT_PARLEY_PROGRAMS_H_

#include <string>

#include "absl/status/statusor.h"

namespace parley {

// The path of another of our programs, "parley-worker": beside this one's own. NotFound where it is
// not there.
absl::StatusOr<std::string> SiblingProgram(const std::string& name);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_PROGRAMS_H_
