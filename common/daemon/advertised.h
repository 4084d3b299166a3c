#ifndef PARLEY_COMMON_DAEMON_ADVERTISED_H_
#define PARLEY_COMMON_DAEMON_ADVERTISED_H_

#include <string>

#include "absl/status/statusor.h"

namespace parley {

// host:port at which others reach a server that listens at `listening` (host:port): what
// --advertise says, with the server's own port where it says 0, or `listening` where it is empty.
// InvalidArgument where it is no HOST:PORT.
absl::StatusOr<std::string> AdvertisedAddress(const std::string& advertise,
                                              const std::string& listening);

}  // namespace parley

#endif  // PARLEY_COMMON_DAEMON_ADVERTISED_H_
