#ifndef PARLEY_CLIENT_GRPC_COORDINATOR_CLIENT_H_
#define PARLEY_CLIENT_GRPC_COORDINATOR_CLIENT_H_

#include <memory>
#include <string>

#include "client/coordinator_client.h"
#include "client/open_calls.h"
#include "common/security/credentials.h"

namespace parley {

// A client over gRPC for the coordinator at host:port; connects lazily (client/grpc_connector.h).
std::shared_ptr<CoordinatorClient> MakeGrpcCoordinatorClient(std::string address,
                                                             SharedCredentials credentials,
                                                             std::shared_ptr<OpenCalls> calls);

}  // namespace parley

#endif  // PARLEY_CLIENT_GRPC_COORDINATOR_CLIENT_H_
