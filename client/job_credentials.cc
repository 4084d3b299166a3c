#include "client/job_credentials.h"

#include "absl/strings/strip.h"
#include "common/security/credential_file.h"

namespace parley {

absl::StatusOr<SharedCredentials> CredentialsOfJob(const std::string& coordinator,
                                                   const std::string& path) {
  if (!path.empty()) return ReadCredentials(path);
  absl::string_view address_file = coordinator;
  if (!absl::ConsumePrefix(&address_file, "file:")) return SharedCredentials();
  auto there = ReadCredentials(CredentialsBeside(std::string(address_file)));
  if (absl::IsNotFound(there.status())) return SharedCredentials();
  return there;
}

}  // namespace parley
