#ifndef PARLEY_CLIENT_PARLEY_METRICS_TEXT_H_
#define PARLEY_CLIENT_PARLEY_METRICS_TEXT_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace parley {

// One sample of a scrape.
struct MetricSample {
  std::string name;
  std::map<std::string, std::string> labels;
  double value = 0;
};

// The samples of a text in Prometheus' format (version 0.0.4), in their order. What is none, as
// comments and lines that cannot be read, is left out.
std::vector<MetricSample> ParseMetrics(std::string_view text);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_METRICS_TEXT_H_
