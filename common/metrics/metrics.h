#ifndef PARLEY_COMMON_METRICS_METRICS_H_
#define PARLEY_COMMON_METRICS_METRICS_H_

#include <prometheus/counter.h>
#include <prometheus/exposer.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace parley {

// A process's metrics. Each has the labels job, role and member beside its own; they are put on at
// the scrape, so that a metric may be made before the process knows which member it is. A process
// has one, made in its main and passed on. Metrics live as long as it. Thread-safe.
class Metrics {
 public:
  using Labels = std::map<std::string, std::string>;

  Metrics();
  ~Metrics();

  // job: its name; role: "worker"; member: "worker-1", empty until it is known.
  void SetIdentity(const std::string& job, const std::string& role, const std::string& member);

  // The same name and labels give the same metric. Names have the prefix parley_ and a base unit.
  prometheus::Counter& Counter(const std::string& name, const std::string& help,
                               const Labels& labels = {});
  prometheus::Gauge& Gauge(const std::string& name, const std::string& help,
                           const Labels& labels = {});
  prometheus::Histogram& Histogram(const std::string& name, const std::string& help,
                                   const std::vector<double>& bounds, const Labels& labels = {});

  // parley_rpc_duration_seconds{method,code}: an RpcObserver (common/rpc/server.h).
  void ObserveRpc(const std::string& method, int code, absl::Duration duration);

  // Serves /metrics on host:port (port 0 takes a free one). Unavailable where that is not possible.
  absl::Status Serve(const std::string& listen);

  // host:port, once it is served.
  std::string address() const { return address_; }

  // The text of a scrape.
  std::string Text() const;

 private:
  class Labelled;

  const std::shared_ptr<prometheus::Registry> registry_;
  const std::shared_ptr<Labelled> labelled_;
  std::unique_ptr<prometheus::Exposer> exposer_;  // set once, by Serve
  std::string address_;
};

// Bounds for durations: 100 us to 100 s, four to a decade.
const std::vector<double>& DurationBounds();

}  // namespace parley

#endif  // PARLEY_COMMON_METRICS_METRICS_H_
