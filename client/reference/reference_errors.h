#ifndef PARLEY_CLIENT_REFERENCE_REFERENCE_ERRORS_H_
#define PARLEY_CLIENT_REFERENCE_REFERENCE_ERRORS_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/reference/reference_id.h"

namespace parley {

// Of the answers that both sides give.

inline absl::Status ValueGone(const ReferenceId& id) {
  return absl::NotFoundError(absl::StrCat("the value of reference ", ToString(id), " is gone"));
}

inline absl::Status StepEnded(const StepScope& scope) {
  return absl::FailedPreconditionError(
      absl::StrFormat("step %d, attempt %d, has ended", scope.step, scope.attempt));
}

}  // namespace parley

#endif  // PARLEY_CLIENT_REFERENCE_REFERENCE_ERRORS_H_
