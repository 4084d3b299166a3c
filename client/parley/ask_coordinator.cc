#include "client/parley/ask_coordinator.h"

namespace parley {

absl::Status NoAnswer(const absl::Status& status, const std::string& address,
                      const std::string& coordinator) {
  const std::string where =
      address == coordinator ? address : absl::StrCat(address, ", named in ", coordinator, ",");
  const bool is_away = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
  if (!is_away) {
    return absl::Status(status.code(),
                        absl::StrCat("the coordinator at ", where, " refuses: ", status.message()));
  }
  return absl::Status(
      status.code(),
      absl::StrCat("the coordinator at ", where, " does not answer: ", status.message(),
                   "; if it has died, start it again with the same --job and --out: its job goes "
                   "on without it for as long as the job's `autonomy` says"));
}

}  // namespace parley
