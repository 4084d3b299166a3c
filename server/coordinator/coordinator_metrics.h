#ifndef PARLEY_SERVER_COORDINATOR_COORDINATOR_METRICS_H_
#define PARLEY_SERVER_COORDINATOR_COORDINATOR_METRICS_H_

#include <cstdint>

#include "absl/time/time.h"
#include "common/metrics/metrics.h"
#include "server/coordinator/coordinator.h"

namespace parley {

// What of the coordinator's state is a metric (docs/operating.md). Owned by main, on its thread.
class CoordinatorMetrics {
 public:
  // `metrics` must outlive it.
  explicit CoordinatorMetrics(Metrics& metrics);

  // A copy of the numbers, so that the core's lock is not held while metrics are set.
  struct Numbers {
    uint64_t generation = 0;
    uint64_t members = 0;
    uint64_t expected_members = 0;
    uint64_t wanted_workers = 0;
    uint64_t view_epoch = 0;
    uint64_t job_epoch = 0;
    uint64_t step = 0;
    uint64_t samples = 0;
    double loss = 0;
    uint64_t applied = 0;
    uint64_t skipped = 0;
    uint64_t retried = 0;
    uint64_t checkpoint_step = 0;
    uint64_t goes_back_to_step = 0;
    absl::Duration checkpoint_duration;
    uint64_t shards_lost = 0;
    uint64_t steps_lost = 0;
    uint64_t checkpoints_written = 0;
    uint64_t checkpoints_failed = 0;  // without those that were given up for a lost shard
  };
  static Numbers Read(const CoordinatorCore& core);

  void Update(const Numbers& numbers);

 private:
  prometheus::Gauge& generation_;
  prometheus::Gauge& members_;
  prometheus::Gauge& expected_members_;
  prometheus::Gauge& wanted_workers_;
  prometheus::Gauge& view_epoch_;
  prometheus::Gauge& job_epoch_;
  prometheus::Gauge& step_;
  prometheus::Counter& samples_;
  prometheus::Gauge& loss_;
  prometheus::Counter& applied_;
  prometheus::Counter& skipped_;
  prometheus::Counter& retried_;
  prometheus::Histogram& checkpoint_duration_;
  prometheus::Gauge& checkpoint_last_step_;
  prometheus::Gauge& goes_back_to_step_;
  prometheus::Counter& checkpoint_failures_;
  prometheus::Counter& shards_lost_;
  prometheus::Counter& steps_lost_;
  Numbers last_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_COORDINATOR_METRICS_H_
