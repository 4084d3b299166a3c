#include "client/parley/ask_coordinator.h"

#include "common/security/credential_file.h"
#include "common/security/protection.h"

namespace parley {

absl::Status NoAnswer(const absl::Status& status, const std::string& address,
                      const std::string& coordinator) {
  const std::string where =
      address == coordinator ? address : absl::StrCat(address, ", named in ", coordinator, ",");
  // Without credentials the connection is closed, as if nobody were there.
  const std::string beyond =
      IsLoopback(address) || address != coordinator
          ? ""
          : absl::StrCat(
                "; beyond its machine it may answer only who names the job's credentials: "
                "--credentials=JOBDIR/",
                kCredentialFile);
  const bool is_away = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
  if (!is_away) {
    return absl::Status(status.code(),
                        absl::StrCat("the coordinator at ", where, " refuses: ", status.message()));
  }
  return absl::Status(
      status.code(),
      absl::StrCat("the coordinator at ", where, " does not answer: ", status.message(),
                   "; if it has died, start it again with the same --job and --out: its job goes "
                   "on without it for as long as the job's `autonomy` says",
                   beyond));
}

}  // namespace parley
