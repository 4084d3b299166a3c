#ifndef PARLEY_CLIENT_PARLEY_DOCTOR_CREDENTIALS_CHECK_H_
#define PARLEY_CLIENT_PARLEY_DOCTOR_CREDENTIALS_CHECK_H_

#include "absl/status/statusor.h"
#include "client/parley/doctor/finding.h"
#include "common/security/credentials.h"

namespace parley {

// How a process of this machine would show that it belongs to the job. `found`: what reading the
// credentials has given (client/job_credentials.h).
Finding CheckCredentials(const absl::StatusOr<SharedCredentials>& found);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_DOCTOR_CREDENTIALS_CHECK_H_
