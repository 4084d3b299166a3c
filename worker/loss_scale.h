#ifndef PARLEY_WORKER_LOSS_SCALE_H_
#define PARLEY_WORKER_LOSS_SCALE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "proto/types.pb.h"

namespace parley {

// What the loss is multiplied by before backward, and its gradients divided by after it, so that
// those in between are not too small for float16 (below 6e-8 they are 0): Micikevicius et al.,
// "Mixed Precision Training", 2018. Its value follows the verdicts, as that of
// torch.amp.GradScaler does: a step that is skipped, since a gradient was not finite, halves it;
// growth_interval steps without one in between double it. A power of two, so that multiplying and
// dividing round nothing.
//
// Each worker has its own: what it pushes is divided already, so that they need not be the same.
// All see the same verdicts in synchronous jobs, and then they are, but for a worker that has just
// come. The training thread's.
class LossScale {
 public:
  // Skipped steps, one after the other, after which the job fails: their gradients are not finite
  // whatever they are multiplied by.
  static constexpr int kMostSkipped = 64;

  // 1 for ever, unless the job's precision is FLOAT16_AUTOCAST.
  explicit LossScale(const JobConfig& job);

  double value() const { return value_; }

  // A step that was computed with it is decided. FailedPrecondition: training has diverged.
  absl::Status Decided(const Verdict& verdict);

 private:
  static constexpr double kMost = 1 << 24;

  const bool in_use_;
  const bool grows_;
  const uint64_t growth_interval_;
  double value_ = 1;
  uint64_t applied_ = 0;  // since the value changed
  int skipped_ = 0;       // one after the other
};

}  // namespace parley

#endif  // PARLEY_WORKER_LOSS_SCALE_H_
