#ifndef PARLEY_COMMON_METRICS_PROCESS_METRICS_H_
#define PARLEY_COMMON_METRICS_PROCESS_METRICS_H_

#include <prometheus/collectable.h>

namespace parley {

// The usual process_* metrics, read from /proc/self at each scrape. Stateless; thread-safe.
class ProcessMetrics final : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override;
};

}  // namespace parley

#endif  // PARLEY_COMMON_METRICS_PROCESS_METRICS_H_
