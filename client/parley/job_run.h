#ifndef PARLEY_CLIENT_PARLEY_JOB_RUN_H_
#define PARLEY_CLIENT_PARLEY_JOB_RUN_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/connector.h"
#include "client/parley/children.h"
#include "client/parley/progress_display.h"
#include "client/parley/signal_inbox.h"
#include "client/parley/status_query.h"
#include "client/parley/supervision.h"
#include "common/file_system.h"
#include "proto/coordinator.pb.h"
#include "proto/job.pb.h"

namespace parley {

// All roles of one job as processes of this machine, from start to end. Owns the processes; whoever
// destroys it ends them. Used by the main thread.
class JobRun {
 public:
  // Paths of the programs.
  struct Programs {
    std::string coordinator;
    std::string shard;
    std::string worker;
    std::string stage;  // where the job has stages
  };
  struct Directory {
    std::string out;           // the job's, absolute, with job.textproto in it
    bool resume = false;       // from its newest checkpoint, if it has one
    bool one_sigterm = false;  // as Supervision::Limits has it
  };
  struct Result {
    Supervision::Outcome outcome;
    GetStatusReply status;  // the last one that was seen
    // Some were killed, the coordinator perhaps before it had recorded how the job ended.
    bool killed = false;
  };

  // All references must outlive the object.
  JobRun(const JobConfig& job, Programs programs, const Directory& directory, FileSystem& files,
         Connector& connector, SignalInbox& signals, ProgressDisplay& display);

  // Starts the processes and stays until the last has ended.
  Result Run();

 private:
  std::vector<std::string> CommandOf(const std::string& name, const std::string& program) const;
  // Tells the job to end by itself.
  void Preempt(int signal);
  absl::Status Start(const std::string& name, const std::string& program);
  // Shards, workers and stages, once the coordinator answers: whatever is wrong with the job's
  // directory or the coordinator's ports shows before they exist.
  absl::Status StartMembers();
  // What `parley scale` and `parley drain` have changed: starts the workers that are missing now.
  void FollowWanted(const GetStatusReply& status);
  absl::Status StartWorkers(uint32_t count, const GetStatusReply& status);
  // NAME.log, or another one where that is another process's.
  enum class Taken { kByAny, kByEnded };  // whose ones stay
  std::string NewLog(const std::string& name, Taken by) const;
  // Workers that run and were not told to go.
  uint32_t StayingWorkers() const;
  // Not a worker that was told to go, or that has no place in a job that trains.
  bool IsMissed(const Children::Child& ended) const;
  void Ended(size_t child, absl::Time now);
  // Starts another process in its place.
  absl::Status Restart(const Children::Child& child);
  void See(const GetStatusReply& status, absl::Time now);
  // The coordinator gives ordinals in the order of joining; names and logs follow them, once all
  // are known.
  void NameByOrdinal(const GetStatusReply& status);
  absl::Duration PollInterval() const;
  std::vector<std::string> Running() const;

  const JobConfig& job_;
  const Programs programs_;
  const std::string out_;
  const bool resume_;
  SignalInbox& signals_;
  ProgressDisplay& display_;
  StatusPoller poller_;
  Supervision supervision_;
  Children children_;
  bool members_started_ = false;
  bool named_ = false;
  uint32_t wanted_workers_ = 0;  // last seen
  uint32_t lost_workers_ = 0;    // that nobody has replaced
  std::set<int64_t> drained_;    // pids of workers that were told to go
  GetStatusReply status_;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_JOB_RUN_H_
