#ifndef PARLEY_CLIENT_GRPC_SHARD_CLIENT_H_
#define PARLEY_CLIENT_GRPC_SHARD_CLIENT_H_

#include <memory>
#include <string>

#include "client/open_calls.h"
#include "client/shard_client.h"

namespace parley {

// A client over gRPC for the parameter shard at host:port; connects lazily
// (client/grpc_connector.h).
std::shared_ptr<ShardClient> MakeGrpcShardClient(std::string address,
                                                 std::shared_ptr<OpenCalls> calls);

}  // namespace parley

#endif  // PARLEY_CLIENT_GRPC_SHARD_CLIENT_H_
