#include "common/metrics/metrics.h"

#include <prometheus/client_metric.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <exception>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/metrics/process_metrics.h"

namespace parley {
namespace {

// Who connects and says nothing has one of so many threads, for so long.
constexpr int kThreads = 4;
constexpr absl::Duration kPatience = absl::Seconds(2);

}  // namespace

// All of the process's families, with the identity's labels on each metric.
class Metrics::Labelled final : public prometheus::Collectable {
 public:
  explicit Labelled(std::shared_ptr<prometheus::Registry> registry)
      : registry_(std::move(registry)) {}

  void Set(const std::string& job, const std::string& role, const std::string& member) {
    absl::MutexLock lock(&mu_);
    identity_ = {{"job", job}, {"role", role}, {"member", member}};
  }

  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> families = registry_->Collect();
    for (auto& family : process_.Collect()) families.push_back(std::move(family));
    absl::MutexLock lock(&mu_);
    for (auto& family : families) {
      for (auto& metric : family.metric) {
        metric.label.insert(metric.label.end(), identity_.begin(), identity_.end());
      }
    }
    return families;
  }

 private:
  const std::shared_ptr<prometheus::Registry> registry_;
  const ProcessMetrics process_;
  mutable absl::Mutex mu_;
  std::vector<prometheus::ClientMetric::Label> identity_ ABSL_GUARDED_BY(mu_);
};

Metrics::Metrics()
    : registry_(std::make_shared<prometheus::Registry>()),
      labelled_(std::make_shared<Labelled>(registry_)) {}

Metrics::~Metrics() = default;

void Metrics::SetIdentity(const std::string& job, const std::string& role,
                          const std::string& member) {
  labelled_->Set(job, role, member);
}

prometheus::Counter& Metrics::Counter(const std::string& name, const std::string& help,
                                      const Labels& labels) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(*registry_).Add(labels);
}

prometheus::Gauge& Metrics::Gauge(const std::string& name, const std::string& help,
                                  const Labels& labels) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(*registry_).Add(labels);
}

prometheus::Histogram& Metrics::Histogram(const std::string& name, const std::string& help,
                                          const std::vector<double>& bounds, const Labels& labels) {
  return prometheus::BuildHistogram()
      .Name(name)
      .Help(help)
      .Register(*registry_)
      .Add(labels, prometheus::Histogram::BucketBoundaries(bounds));
}

void Metrics::ObserveRpc(const std::string& method, int code, absl::Duration duration) {
  Histogram(
      "parley_rpc_duration_seconds", "Calls answered by this process, in seconds.",
      DurationBounds(),
      {{"method", method}, {"code", absl::StatusCodeToString(static_cast<absl::StatusCode>(code))}})
      .Observe(absl::ToDoubleSeconds(duration));
}

absl::Status Metrics::Serve(const std::string& listen) {
  const auto refused = [&](const char* why) {
    return absl::UnavailableError(absl::StrCat(
        "cannot serve metrics on ", listen, ": ", why,
        "; the port may be in use: choose another --metrics (port 0 takes a free one)"));
  };
  const size_t colon = listen.rfind(':');
  if (colon == std::string::npos || colon == 0) return refused("it is no HOST:PORT");
  try {  // the web server inside throws
    exposer_ = std::make_unique<prometheus::Exposer>(std::vector<std::string>{
        "listening_ports", listen, "num_threads", absl::StrCat(kThreads), "request_timeout_ms",
        absl::StrCat(absl::ToInt64Milliseconds(kPatience))});
    const std::vector<int> ports = exposer_->GetListeningPorts();
    if (ports.empty()) return refused("nothing listens");
    address_ = absl::StrCat(listen.substr(0, colon), ":", ports.front());
    exposer_->RegisterCollectable(labelled_);
  } catch (const std::exception& error) {
    return refused(error.what());
  }
  return absl::OkStatus();
}

std::string Metrics::Text() const {
  return prometheus::TextSerializer().Serialize(labelled_->Collect());
}

const std::vector<double>& DurationBounds() {
  static const auto& bounds =
      *new std::vector<double>{1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1,
                               0.2,  0.5,  1,    2,    5,    10,   20,   50,   100};
  return bounds;
}

}  // namespace parley
