#ifndef PARLEY_CLIENT_GRPC_SHARD_CLIENT_H_
#define PARLEY_CLIENT_GRPC_SHARD_CLIENT_H_

#include <memory>
#include <string>

#include "client/direct_link.h"
#include "client/open_calls.h"
#include "client/shard_client.h"
#include "common/security/credentials.h"

namespace parley {

// A client over gRPC for the parameter shard at host:port; connects lazily
// (client/grpc_connector.h).
struct GrpcShard {
  std::shared_ptr<ShardClient> client;
  DirectLink::Find find_direct;  // keeps the client
};
GrpcShard MakeGrpcShardClient(std::string address, SharedCredentials credentials,
                              std::shared_ptr<OpenCalls> calls);

}  // namespace parley

#endif  // PARLEY_CLIENT_GRPC_SHARD_CLIENT_H_
