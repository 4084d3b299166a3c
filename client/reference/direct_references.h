#ifndef PARLEY_CLIENT_REFERENCE_DIRECT_REFERENCES_H_
#define PARLEY_CLIENT_REFERENCE_DIRECT_REFERENCES_H_

#include <memory>

#include "absl/time/time.h"
#include "client/direct_link.h"
#include "client/reference/reference_holder.h"
#include "client/reference/reference_host.h"
#include "common/direct/direct_server.h"
#include "common/replies.h"
#include "common/rpc/rpc_observer.h"

namespace parley {

// References over direct connections (docs/direct_connections.md): the two calls that carry values.

// What a DirectServer does for this process; they hold the host. `observer` may be empty.
DirectServer::Methods DirectReferenceMethods(std::shared_ptr<ReferenceHost> host,
                                             RpcObserver observer);

// One attempt over the link; false: not begun, and `done` is as it was.
bool CallDirectly(DirectLink& link, const OutgoingCall& call, absl::Time deadline,
                  Done<FromOwner>& done);
bool FetchDirectly(DirectLink& link, const FetchRequest& request, absl::Time deadline,
                   Done<FromOwner>& done);

}  // namespace parley

#endif  // PARLEY_CLIENT_REFERENCE_DIRECT_REFERENCES_H_
