#ifndef PARLEY_CLIENT_LOCAL_CONNECTOR_H_
#define PARLEY_CLIENT_LOCAL_CONNECTOR_H_

#include <memory>

#include "client/connector.h"

namespace parley {

// A connector whose Push, Pull and Complete go through shared memory to shards that are on this
// machine and let this user in (docs/shared_memory.md), and through `remote` to all others, as all
// other calls do. What a shard is, is found out when it is connected; until it has answered, and
// where the connection breaks, calls go through `remote`.
//
// As with `remote`: calls of a dropped client may still be answered, and the connector must not be
// destroyed by a `done`.
std::unique_ptr<Connector> MakeLocalConnector(std::unique_ptr<Connector> remote);

}  // namespace parley

#endif  // PARLEY_CLIENT_LOCAL_CONNECTOR_H_
