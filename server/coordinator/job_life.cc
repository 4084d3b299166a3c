#include "server/coordinator/job_life.h"

namespace parley {

bool JobLife::IsLegal(Phase from, Phase to) {
  // All have joined and all workers have registered the same model: the view is made.
  if (from == GATHERING && to == PREPARING) return true;
  // Every shard has its slices loaded, or initialised by contributor 0.
  if (from == PREPARING && to == TRAINING) return true;
  // Every worker has finished and the verdict of its last step is known here.
  if (from == TRAINING && to == SAVING) return true;
  // A shard was lost and another one has its place: all go back to a checkpoint.
  if ((from == PREPARING || from == TRAINING || from == SAVING) && to == PREPARING) return true;
  // The last checkpoint is committed, or none was asked for.
  if (from == SAVING && to == FINISHED) return true;
  // A member was lost, stalled, gave up or left early, or the coordinator itself cannot go on.
  if (from == GATHERING && to == FAILED) return true;
  // As above.
  if (from == PREPARING && to == FAILED) return true;
  // As above.
  if (from == TRAINING && to == FAILED) return true;
  // As above, or the last checkpoint could not be written.
  if (from == SAVING && to == FAILED) return true;
  return false;
}

bool JobLife::Enter(Phase next) {
  if (!IsLegal(phase_, next)) return false;
  phase_ = next;
  return true;
}

}  // namespace parley
