#ifndef PARLEY_SERVER_PARAMETER_SHARD_SHARD_METRICS_H_
#define PARLEY_SERVER_PARAMETER_SHARD_SHARD_METRICS_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/metrics/metrics.h"
#include "server/parameter_shard/locked_shard.h"

namespace parley {

// The shard's own metrics (docs/operating.md lists them). Update is called by one thread at a time;
// the others by any.
class ShardMetrics {
 public:
  explicit ShardMetrics(Metrics& metrics);

  void Update(const LockedShard::News& news);
  void OnPhase(LockedShard::Phase phase, absl::Duration spent);
  void OnCheckpoint(uint64_t step, absl::Duration spent, bool written);

 private:
  // A counter that follows a count of the core.
  struct Follower {
    prometheus::Counter& counter;
    uint64_t ShardCounts::*count;
    uint64_t shown = 0;
  };

  std::vector<Follower> followers_;
  prometheus::Gauge& step_;
  prometheus::Gauge& job_epoch_;
  prometheus::Gauge& view_epoch_;
  prometheus::Gauge& checkpoint_step_;
  prometheus::Histogram& reduce_;
  prometheus::Histogram& apply_;
  prometheus::Histogram& apply_copying_;
  prometheus::Histogram& checkpoint_;
  prometheus::Counter& checkpoint_failures_;
  prometheus::Counter& ahead_;
  absl::Duration ahead_shown_;
  prometheus::Counter& barrier_wait_;
  absl::Duration barrier_wait_shown_;
  prometheus::Histogram& staleness_;
  StalenessCounts staleness_shown_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_SHARD_METRICS_H_
