#ifndef PARLEY_TESTS_SIMULATION_COORDINATOR_PROCESS_H_
#define PARLEY_TESTS_SIMULATION_COORDINATOR_PROCESS_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/file_system.h"
#include "common/log.h"
#include "proto/job.pb.h"
#include "server/coordinator/job_directory.h"
#include "server/coordinator/job_log.h"
#include "server/coordinator/locked_coordinator.h"
#include "tests/simulation/network.h"
#include "tests/simulation/process.h"

namespace parley {

// A coordinator of a simulated job, as server/coordinator/main.cc makes one of the same pieces: it
// waits for the rule, takes over what the log says, serves, records, and goes when the job is over
// or another coordinator rules. Its directory is /job.
class CoordinatorProcess {
 public:
  struct Surroundings {
    World* world;
    Network* network;
    FileSystem* files;  // the job's; other coordinators use them too
    Log* log;
    JobConfig job;
    absl::Duration disk;           // a record takes so long at most
    std::function<void()> on_end;  // it has ended by itself, as end() says
    // Verdicts that are reported to it.
    std::function<void(const Verdict&, uint64_t job_epoch)> hear;
    // Its service as it is to be served, and what looks at it now and then; may be null.
    std::function<std::shared_ptr<CoordinatorClient>(std::shared_ptr<CoordinatorClient>)> witness;
    std::function<void(const CoordinatorCore&)> after_tick;
  };

  // All must outlive it.
  CoordinatorProcess(std::shared_ptr<Process> process, Surroundings surroundings);

  const std::shared_ptr<Process>& process() const { return process_; }
  // It has had the rule.
  bool has_ruled() const { return generation_ != 0; }
  const LockedCoordinator& core() const { return *core_; }  // of one that has ruled
  // For an operator's calls, which are made on its machine.
  CoordinatorClient& service() { return *core_; }
  uint64_t generation() const { return generation_; }
  // How it ended; unknown while it runs or if it was killed. OK: the job is over.
  const absl::Status& end() const { return end_; }

 private:
  absl::Status Run();
  absl::Status Rule(JobLog log);
  absl::StatusOr<GetStatusReply> Ask(const std::string& address);
  // Lets time pass. Unwinds the fiber of a process that was killed.
  void Sleep(absl::Duration time);

  const std::shared_ptr<Process> process_;
  const Surroundings around_;
  const std::unique_ptr<Connector> connector_;
  JobDirectory directory_;
  std::shared_ptr<LockedCoordinator> core_;
  uint64_t generation_ = 0;
  absl::Status end_ = absl::UnknownError("it runs, or was killed");
};

}  // namespace parley

#endif  // PARLEY_TESTS_SIMULATION_COORDINATOR_PROCESS_H_
