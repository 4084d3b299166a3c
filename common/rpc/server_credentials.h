#ifndef PARLEY_COMMON_RPC_SERVER_CREDENTIALS_H_
#define PARLEY_COMMON_RPC_SERVER_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "common/rpc/recent_visitors.h"
#include "common/rpc/refusals.h"
#include "common/security/credentials.h"

namespace parley {

// Whom a gRPC server lets in, before any call reaches a service (docs/security.md):
//   nullptr     everybody
//   with TLS    who has the job's own certificate; others, for whatever their certificate is worth
//               elsewhere, do not get through the handshake
//   without     calls that say the job's token; others end with UNAUTHENTICATED, unread
// visitors: among whom those that are refused are looked for.
std::shared_ptr<grpc::ServerCredentials> ServerCredentialsFor(
    const SharedCredentials& credentials, std::shared_ptr<Refusals> refusals,
    std::shared_ptr<const RecentVisitors> visitors);

}  // namespace parley

#endif  // PARLEY_COMMON_RPC_SERVER_CREDENTIALS_H_
