#ifndef PARLEY_CLIENT_LEASE_PLAN_H_
#define PARLEY_CLIENT_LEASE_PLAN_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "client/step_plan.h"
#include "proto/job.pb.h"
#include "proto/types.pb.h"

namespace parley {

// What one contributor does in bounded and async: the counterpart of DataPlan, where the step
// leader says what comes next (docs/clocked.md). One thread uses it.
class LeasePlan {
 public:
  // At the start of the view's job_epoch.
  LeasePlan(const JobConfig& job, const ClusterView& view);

  // The step leader's answer to Enter or Complete. version: the serial number of the last verdict
  // that this worker knows.
  void Follow(uint64_t version, const Lease& lease);

  // The last verdict that this worker knows; right after a barrier, the version that it has made.
  uint64_t version() const { return version_; }
  // How many data epochs are used up.
  uint64_t data_epochs() const { return lease_.data_epoch(); }
  const Lease& lease() const { return lease_; }

  // What comes next; nullopt when the job is done. `step` is the clock.
  std::optional<StepPlan> Next() const;

 private:
  const JobConfig job_;
  const uint64_t training_samples_;
  uint64_t version_;
  Lease lease_;
  // The order of the present data epoch.
  mutable std::map<uint64_t, std::vector<uint64_t>> orders_;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_LEASE_PLAN_H_
