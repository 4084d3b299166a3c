#include "worker/training_end.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace parley {

absl::Status EndTraining(Session& session, Log& log, const absl::Status& status) {
  if (session.drained()) {
    log.Info("has left the job, which goes on with fewer workers",
             {{"version", absl::StrCat(session.version())}});
    return absl::OkStatus();
  }
  // What comes after Finish is nobody else's matter.
  if (status.ok() || session.finished()) return status;
  const FirstCause cause = session.Fail(std::string(status.message()), absl::IsCancelled(status));
  return absl::Status(status.code(), cause.text());
}

}  // namespace parley
