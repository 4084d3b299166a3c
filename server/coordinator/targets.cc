#include "server/coordinator/targets.h"

#include <nlohmann/json.hpp>

namespace parley {

std::string TargetsJson(const std::string& job, const std::string& coordinator_metrics,
                        const std::vector<Member>& members) {
  nlohmann::json targets = nlohmann::json::array();
  if (!coordinator_metrics.empty()) targets.push_back(coordinator_metrics);
  for (const Member& member : members) {
    if (!member.metrics_address().empty()) targets.push_back(member.metrics_address());
  }
  const nlohmann::json groups = nlohmann::json::array(
      {nlohmann::json{{"targets", targets}, {"labels", nlohmann::json{{"job", job}}}}});
  // What a member says of itself need not be UTF-8.
  return groups.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace parley
