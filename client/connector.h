#ifndef PARLEY_CLIENT_CONNECTOR_H_
#define PARLEY_CLIENT_CONNECTOR_H_

#include <memory>
#include <string>

#include "client/coordinator_client.h"
#include "client/shard_client.h"
#include "client/visitors.h"
#include "common/shared_memory/memory_source.h"

namespace parley {

// Makes clients from addresses (host:port): over gRPC in the programs (client/grpc_connector.h),
// straight to the cores in tests. Connecting is lazy: an address where nobody listens shows at the
// first call, as Unavailable. Thread-safe; outlives its clients.
class Connector {
 public:
  virtual ~Connector() = default;
  virtual std::shared_ptr<CoordinatorClient> ConnectCoordinator(const std::string& address) = 0;
  virtual std::shared_ptr<ShardClient> ConnectShard(const std::string& address) = 0;
  // Memory that its shards may be able to read where it lies; nullptr: there is none.
  virtual MemorySource* memory() { return nullptr; }
  // Where answers may be looked for by whoever waits for them; nullptr: nowhere.
  virtual Visitors* visitors() { return nullptr; }
};

}  // namespace parley

#endif  // PARLEY_CLIENT_CONNECTOR_H_
