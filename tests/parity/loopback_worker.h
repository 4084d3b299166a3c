#ifndef PARLEY_TESTS_PARITY_LOOPBACK_WORKER_H_
#define PARLEY_TESTS_PARITY_LOOPBACK_WORKER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/connector.h"
#include "client/session.h"
#include "client/trace.h"
#include "proto/job.pb.h"
#include "tests/parity/loopback_cluster.h"

namespace parley {

// A cluster of this machine and the session of its one worker, as a program of a library user's has
// it. One thread uses it.
class LoopbackWorker {
 public:
  // Starts coordinator and shards for the job `text` and joins them over shared memory. The codes
  // of Session::Join.
  static absl::StatusOr<std::unique_ptr<LoopbackWorker>> Join(
      const std::string& coordinator, const std::string& shard, const std::string& text,
      const std::shared_ptr<Trace>& trace = nullptr);

  const LoopbackCluster& cluster() const { return cluster_; }
  const JobConfig& job() const { return cluster_.job(); }
  Session& session() const { return *session_; }

 private:
  LoopbackWorker(const std::string& coordinator, const std::string& shard, const std::string& text);

  const LoopbackCluster cluster_;
  const std::unique_ptr<Connector> connector_;
  std::unique_ptr<Session> session_;
};

}  // namespace parley

#endif  // PARLEY_TESTS_PARITY_LOOPBACK_WORKER_H_
