#ifndef PARLEY_SERVER_PARAMETER_SHARD_DIRECT_METHODS_H_
#define PARLEY_SERVER_PARAMETER_SHARD_DIRECT_METHODS_H_

#include <functional>
#include <string>

#include "absl/time/time.h"
#include "common/direct/direct_server.h"
#include "server/parameter_shard/locked_shard.h"

namespace parley {

// What a shard does over direct connections (docs/direct_connections.md): Push, Complete and Pull,
// as the gRPC service does them. `observer` is told of each that was answered: its method, code,
// and how long it took; on any thread. Both must outlive the last answer.
DirectServer::Methods DirectShardMethods(
    LockedShard* shard,
    std::function<void(const std::string& method, int code, absl::Duration)> observer);

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_DIRECT_METHODS_H_
