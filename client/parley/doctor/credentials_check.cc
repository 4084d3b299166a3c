#include "client/parley/doctor/credentials_check.h"

#include <string>

namespace parley {
namespace {

constexpr char kWhat[] = "credentials";

}  // namespace

Finding CheckCredentials(const absl::StatusOr<SharedCredentials>& found) {
  const std::string message(found.status().message());
  switch (found.status().code()) {
    case absl::StatusCode::kOk:
      break;
    case absl::StatusCode::kDataLoss:
      return Failure(kWhat, message,
                     "take the file away while no process of the job runs: the next one makes "
                     "another");
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kNotFound:
      return Failure(kWhat, message,
                     "give --credentials a file that only its owner, you, may read (mode 0600)");
    default:  // the directory's check says why, and fails
      return Warning(kWhat, message, "see what is said of the job's directory");
  }
  if (*found == nullptr) return Fine(kWhat, "none: an open job, or one that has not begun");
  return Fine(kWhat, (*found)->tls() ? "the job's certificate and token" : "the job's token");
}

}  // namespace parley
