#ifndef PARLEY_WORKER_TRAINING_END_H_
#define PARLEY_WORKER_TRAINING_END_H_

#include "absl/status/status.h"
#include "client/session.h"
#include "common/log.h"

namespace parley {

// What the end of a training loop is to its job. OK when the job has finished, or has sent this
// worker away; what went wrong in this process after it had finished stays this process's status.
// Otherwise the others are told, unless they know already, and the job has failed, by this worker's
// doing or another's: the message is the first cause's text (Session::failure has the rest).
// status: of the loop; Cancelled where it was preempted. The training thread.
absl::Status EndTraining(Session& session, Log& log, const absl::Status& status);

}  // namespace parley

#endif  // PARLEY_WORKER_TRAINING_END_H_
