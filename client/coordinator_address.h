#ifndef PARLEY_CLIENT_COORDINATOR_ADDRESS_H_
#define PARLEY_CLIENT_COORDINATOR_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/file_system.h"

namespace parley {

// host:port of a --coordinator option: the option itself, or for file:PATH the first line of that
// file, which the coordinator writes once it listens. Unavailable where the file does not exist or
// is empty so far: read it again later. InvalidArgument for what is no address.
absl::StatusOr<std::string> ResolveCoordinator(FileSystem& files, const std::string& option);

}  // namespace parley

#endif  // PARLEY_CLIENT_COORDINATOR_ADDRESS_H_
