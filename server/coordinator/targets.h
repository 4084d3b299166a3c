#ifndef PARLEY_SERVER_COORDINATOR_TARGETS_H_
#define PARLEY_SERVER_COORDINATOR_TARGETS_H_

#include <string>
#include <vector>

#include "proto/types.pb.h"

namespace parley {

// The content of targets.json: all /metrics endpoints of a job in Prometheus' file_sd format, the
// coordinator's first. Members without one are left out. The labels job, role and member lie on the
// metrics themselves; here only `job`, which Prometheus would otherwise set to the name of its
// scrape configuration, `run`, by which two runs of one job file are two (JobDirectory::name), and,
// for `parley why-stuck`, where each member's gRPC server is (__parley_role, __parley_ordinal,
// __parley_address: Prometheus drops labels of this kind).
std::string TargetsJson(const std::string& job, const std::string& run,
                        const std::string& coordinator_metrics, const std::vector<Member>& members);

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_TARGETS_H_
