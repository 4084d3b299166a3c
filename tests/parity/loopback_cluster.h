#ifndef PARLEY_TESTS_PARITY_LOOPBACK_CLUSTER_H_
#define PARLEY_TESTS_PARITY_LOOPBACK_CLUSTER_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "proto/job.pb.h"

namespace parley {

// The real parley-coordinator and parley-shard as processes of this machine, for workers of this
// process to join. The processes end with it.
class LoopbackCluster {
 public:
  // Starts them for the job `text` (tests/parity/job_text.h). coordinator, shard: paths of the
  // programs.
  LoopbackCluster(const std::string& coordinator, const std::string& shard,
                  const std::string& text);
  ~LoopbackCluster();

  const JobConfig& job() const { return job_; }
  const std::string& directory() const { return directory_; }
  // What Session::Options::coordinator takes.
  std::string coordinator() const { return "file:" + directory_ + "/out/coordinator.address"; }

  // Waits for all processes to end by themselves, at most a minute; their exit codes, the
  // coordinator's first, -1 where one had to be killed.
  std::vector<int> Wait();

 private:
  pid_t Start(const std::vector<std::string>& command, const std::string& log);

  std::string directory_;
  JobConfig job_;
  std::vector<pid_t> processes_;
};

}  // namespace parley

#endif  // PARLEY_TESTS_PARITY_LOOPBACK_CLUSTER_H_
