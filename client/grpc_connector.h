#ifndef PARLEY_CLIENT_GRPC_CONNECTOR_H_
#define PARLEY_CLIENT_GRPC_CONNECTOR_H_

#include <memory>

#include "client/connector.h"
#include "common/security/credentials.h"

namespace parley {

// Clients over gRPC: one for each address, however often it is asked for, with channels of its own;
// calls run through the callback API, and no thread waits for a peer. Statuses that gRPC itself
// makes name the peer's host:port. Messages of up to kMaxMessageBytes (common/rpc/channel.h);
// deadlines at most an hour ahead.
//
// direct: Push, Complete and Pull go over direct connections (docs/direct_connections.md) to shards
// that take them, from when such a connection stands.
//
// credentials: the job's (client/job_credentials.h); nullptr for one that is open. Where it has
// TLS, direct connections are encrypted, too.
//
// `done` runs on a thread of gRPC or of the connector. Dropping a client does not end its calls,
// nor its channels, which the connector keeps; their `done` still runs: at their deadlines at the
// latest, or when the connector goes, which cancels what is open (Cancelled) and waits for it; so
// the connector must not be destroyed by a `done`.
std::unique_ptr<Connector> MakeGrpcConnector(bool direct = true,
                                             SharedCredentials credentials = nullptr);

}  // namespace parley

#endif  // PARLEY_CLIENT_GRPC_CONNECTOR_H_
