#ifndef PARLEY_SERVER_PARAMETER_SHARD_IN_PROCESS_H_
#define PARLEY_SERVER_PARAMETER_SHARD_IN_PROCESS_H_

#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "client/shard_client.h"
#include "server/parameter_shard/locked_shard.h"

namespace parley {

// A client straight to a shard of the same process: for tests and simulations. Calls run on the
// caller's thread; `done` runs inside the call, or, where the shard parks it, inside whatever call
// of whatever thread ends the wait (Tick, for deadlines, is for whoever owns the shard). `clock`
// must be thread-safe; the shard must outlive the client.
std::shared_ptr<ShardClient> MakeInProcessShardClient(LockedShard* shard,
                                                      std::function<absl::Time()> clock);

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_IN_PROCESS_H_
