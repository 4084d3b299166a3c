#ifndef PARLEY_CLIENT_PARLEY_ASK_WAITS_H_
#define PARLEY_CLIENT_PARLEY_ASK_WAITS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/security/credentials.h"
#include "proto/waits.pb.h"

namespace parley {

// Asks the processes at these addresses (host:port) at once what they wait for, and waits for the
// answers, at most `timeout`. In the order of the addresses. Blocks; on one thread.
// credentials: the job's.
std::vector<absl::StatusOr<WaitsReply>> AskWaits(const std::vector<std::string>& addresses,
                                                 const SharedCredentials& credentials,
                                                 absl::Duration timeout);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_ASK_WAITS_H_
