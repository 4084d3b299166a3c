#include "server/coordinator/targets.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace parley {

std::string TargetsJson(const std::string& job, const std::string& run,
                        const std::string& coordinator_metrics,
                        const std::vector<Member>& members) {
  nlohmann::json groups = nlohmann::json::array();
  const auto add = [&](const std::string& target, nlohmann::json labels) {
    if (target.empty()) return;
    labels["job"] = job;
    labels["run"] = run;
    groups.push_back({{"targets", nlohmann::json::array({target})}, {"labels", std::move(labels)}});
  };
  add(coordinator_metrics, nlohmann::json::object());
  for (const Member& member : members) {
    // Prometheus drops labels that begin with two underscores; `parley why-stuck` reads them.
    add(member.metrics_address(), {{"__parley_role", Role_Name(member.role())},
                                   {"__parley_ordinal", std::to_string(member.ordinal())},
                                   {"__parley_address", member.address()}});
  }
  // What a member says of itself need not be UTF-8.
  return groups.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace parley
