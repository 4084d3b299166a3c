#include "tests/parity/shard_work.h"

#include <fstream>
#include <regex>
#include <sstream>
#include <string>

#include "client/parley/member_metrics.h"
#include "client/parley/metrics_text.h"
#include "client/parley/scrape.h"

namespace parley {

absl::StatusOr<double> SecondsOfShardWork(const LoopbackCluster& cluster) {
  std::ifstream file(cluster.directory() + "/shard-0.log");
  std::stringstream text;
  text << file.rdbuf();
  const std::string log = text.str();
  std::smatch match;
  if (!std::regex_search(log, match, std::regex(" serving .*\\bmetrics=(\\S+)"))) {
    return absl::UnavailableError("the shard has not said where its metrics are");
  }
  const std::string address = match[1];
  const auto scrapes = ScrapeAll({address}, absl::Seconds(5));
  const auto& scrape = scrapes.at(address);
  if (!scrape.ok()) return scrape.status();
  const MemberMetrics of = MemberMetrics::Of(ParseMetrics(*scrape));
  double seconds = 0;
  for (const auto& [phase, sum] : of.phase_seconds) {
    if (phase == "reduce" || phase == "apply") seconds += sum.sum;
  }
  return seconds;
}

}  // namespace parley
