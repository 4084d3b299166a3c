#ifndef PARLEY_SERVER_PARAMETER_SHARD_DIRECT_METHODS_H_
#define PARLEY_SERVER_PARAMETER_SHARD_DIRECT_METHODS_H_

#include "common/direct/direct_server.h"
#include "common/rpc/rpc_observer.h"
#include "server/parameter_shard/locked_shard.h"

namespace parley {

// What a shard does over direct connections (docs/direct_connections.md): Push, Complete and Pull,
// as the gRPC service does them. `observer` may be empty. Both must outlive the last answer.
DirectServer::Methods DirectShardMethods(LockedShard* shard, RpcObserver observer);

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_DIRECT_METHODS_H_
