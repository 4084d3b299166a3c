#ifndef PARLEY_COMMON_SECURITY_CREDENTIAL_FILE_H_
#define PARLEY_COMMON_SECURITY_CREDENTIAL_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/security/credentials.h"

namespace parley {

// The file `credentials` in a job's directory (docs/security.md): a line `token: HEX`, then, if
// the job's connections are TLS, authority, certificate and key as PEM. Only its owner may read it.
inline constexpr char kCredentialFile[] = "credentials";

// Where it lies, beside the coordinator's address file.
std::string CredentialsBeside(const std::string& address_file);

// NotFound where there is none. PermissionDenied where it may not be read, or others than its owner
// may read it as well: what it guards is guarded no more. DataLoss where it is no such file. The
// messages name it, and what to do.
absl::StatusOr<SharedCredentials> ReadCredentials(const std::string& path);

// The same, but makes new ones where there are none. Of all processes that do so at once, on
// whatever machines that share the folder, one makes them and all read the same. `tls`: what is
// made, where it is made. Unavailable where the folder cannot be written.
absl::StatusOr<SharedCredentials> ReadOrMakeCredentials(const std::string& path, bool tls);

}  // namespace parley

#endif  // PARLEY_COMMON_SECURITY_CREDENTIAL_FILE_H_
