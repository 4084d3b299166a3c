#ifndef PARLEY_CLIENT_JOB_CREDENTIALS_H_
#define PARLEY_CLIENT_JOB_CREDENTIALS_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/security/credentials.h"

namespace parley {

// The credentials of the job that a --coordinator option names, for MakeGrpcConnector: those in the
// file `path`, or, where that is empty and the option is file:JOBDIR/coordinator.address, in
// JOBDIR/credentials, if it is there. nullptr: there are none, and the job is open.
// PermissionDenied: the file may not be read, or others than its owner may read it as well;
// DataLoss: it is no such file; NotFound: `path` is not there. The messages name the file.
absl::StatusOr<SharedCredentials> CredentialsOfJob(const std::string& coordinator,
                                                   const std::string& path);

}  // namespace parley

#endif  // PARLEY_CLIENT_JOB_CREDENTIALS_H_
