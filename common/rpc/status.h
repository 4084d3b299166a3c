#ifndef PARLEY_COMMON_RPC_STATUS_H_
#define PARLEY_COMMON_RPC_STATUS_H_

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"

namespace parley {

// The two have the same codes. gRPC sends at most a few KiB of message: longer ones are cut.
grpc::Status ToGrpc(const absl::Status& status);

// `peer` (host:port) is put before the message where gRPC itself made the status (Unavailable,
// ...), whose text does not name it.
absl::Status FromGrpc(const grpc::Status& status, const std::string& peer);

}  // namespace parley

#endif  // PARLEY_COMMON_RPC_STATUS_H_
