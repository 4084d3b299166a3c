#ifndef PARLEY_CLIENT_PARLEY_STUCK_JOB_H_
#define PARLEY_CLIENT_PARLEY_STUCK_JOB_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/parley/wait_graph.h"
#include "proto/coordinator.pb.h"

namespace parley {

// A process that `parley why-stuck` asks. Pure functions make them of what is known of the job.
struct Askable {
  Place place;
  std::string address;     // host:port; empty: it has no server
  std::string name;        // "shard 1 at HOST:PORT (pid 7)"
  double silent_for = -1;  // seconds since the coordinator heard of it; negative: not known
};

// The coordinator, and the members that have not left.
std::vector<Askable> AskablesOf(const std::string& coordinator, const GetStatusReply& status);

// The members that targets.json names (server/coordinator/targets.h). InvalidArgument where it is
// no such file.
absl::StatusOr<std::vector<Askable>> AskablesOfTargets(const std::string& targets_json);

// What became of the question to `askable`; whether one was asked at all.
AskedProcess Asked(const Askable& askable, const absl::StatusOr<WaitsReply>& reply);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_STUCK_JOB_H_
