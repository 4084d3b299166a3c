#ifndef PARLEY_CLIENT_GRPC_CONNECTOR_H_
#define PARLEY_CLIENT_GRPC_CONNECTOR_H_

#include <memory>

#include "client/connector.h"

namespace parley {

// Clients over gRPC: each has a channel of its own, calls run through the callback API, and no
// thread waits for a peer. Statuses that gRPC itself makes name the peer's host:port. Messages of
// up to kMaxMessageBytes (common/rpc/channel.h).
//
// `done` runs on a thread of gRPC, or before the call returns where the deadline is over already.
// Dropping a client does not end its calls: they end at their deadlines, and `done` runs.
std::unique_ptr<Connector> MakeGrpcConnector();

}  // namespace parley

#endif  // PARLEY_CLIENT_GRPC_CONNECTOR_H_
