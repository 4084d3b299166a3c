#ifndef PARLEY_SERVER_COORDINATOR_JOB_LIFE_H_
#define PARLEY_SERVER_COORDINATOR_JOB_LIFE_H_

#include "proto/coordinator.pb.h"

namespace parley {

// The life of a job: GATHERING -> PREPARING -> TRAINING -> SAVING -> FINISHED, and from all but the
// last to FAILED; back to PREPARING from the three between when a shard was lost. FINISHED and
// FAILED are final.
class JobLife {
 public:
  Phase phase() const { return phase_; }

  // Goes into `next`; false, without effect, where that is not a legal transition.
  bool Enter(Phase next);

  // As another coordinator of the job has left it.
  void Restore(Phase phase) { phase_ = phase; }

  static bool IsLegal(Phase from, Phase to);
  bool ended() const { return phase_ == FINISHED || phase_ == FAILED; }

 private:
  Phase phase_ = GATHERING;
};

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_JOB_LIFE_H_
