#ifndef PARLEY_TESTS_SIMULATION_JOB_SIMULATION_H_
#define PARLEY_TESTS_SIMULATION_JOB_SIMULATION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/session.h"
#include "common/metrics/metrics.h"
#include "proto/coordinator_log.pb.h"
#include "proto/job.pb.h"
#include "server/parameter_shard/shard_process.h"
#include "tests/simulation/checkpoint_checks.h"
#include "tests/simulation/clocked_checks.h"
#include "tests/simulation/contribution_checks.h"
#include "tests/simulation/coordinator_load.h"
#include "tests/simulation/coordinator_process.h"
#include "tests/simulation/fault_coverage.h"
#include "tests/simulation/lease_checks.h"
#include "tests/simulation/network.h"
#include "tests/simulation/open_calls.h"
#include "tests/simulation/process.h"
#include "tests/simulation/simulated_model.h"
#include "tests/simulation/verdict_replay.h"
#include "tests/simulation/witnessed_files.h"
#include "tests/simulation/world.h"

namespace parley {

// A whole job in one thread and in virtual time: the coordinators, the shards' processes and the
// workers' sessions are the real ones, with a simulated network and simulated machines around
// them. The gradient of a sample is a vector of small integers, the rate 1: so the parameters are
// known exactly from which samples the verdicts name, whatever the order of additions, and a lost
// or doubled update shows (VerdictReplay). docs/simulation.md lists what is checked.
class JobSimulation {
 public:
  struct Options {
    uint64_t seed = 1;
    JobConfig job;
    SimulatedModel model;
    uint64_t samples = 120;
    uint64_t test_samples = 10;
    NetworkFaults network;
    absl::Duration start_within =
        absl::ZeroDuration();  // shards and workers come one after the other
    absl::Duration compute = absl::Milliseconds(300);  // of a worker in a step, at most
    // Of the first worker, at most; and at least half of it. Zero: as the others.
    absl::Duration slow_compute = absl::ZeroDuration();
    bool all_evaluations_whole = false;  // whatever happens
    double clock_drift = 0;              // clocks run up to this much fast or slow
    // How often; half of them within the first `faults_within`, the others within five times that:
    absl::Duration faults_within = absl::Seconds(40);
    int stops = 0;               // a process stands still for less than its lease
    int long_stops = 0;          // a worker stands still for longer
    int kills = 0;               // a worker is killed, and another one started after a while
    int scalings = 0;            // an operator wants more or fewer workers, or one of them away
    int shard_kills = 0;         // a shard is killed, and another one started after a while
    int cuts = 0;                // two processes do not hear each other for less than a lease
    int isolations = 0;          // a worker is cut off from all for longer
    int coordinator_kills = 0;   // the coordinator is killed, and started again after a while
    int coordinator_stops = 0;   // it stands still, and another one may be started meanwhile
    int coordinator_rivals = 0;  // another one is started while it rules
    int coordinator_cuts = 0;    // it is cut off from all for a while
    int disk_faults = 0;         // some operations on the job's files fail, or seem to
    absl::Duration disk = absl::Milliseconds(50);  // a record takes so long at most
    uint64_t most_events = 2'000'000;  // until it is said not to end; some 10,000 are usual
    bool aim = true;  // half of the faults at a state; looking for it takes time in a large job
    CoordinatorLoad* coordinator_load = nullptr;  // counts there; must outlive the simulation
  };

  explicit JobSimulation(Options options);
  ~JobSimulation();

  // Runs until the job has ended and all processes with it, or until nothing happens any more, or
  // for too long in virtual time. Empty if every promise was kept; else what was broken.
  std::vector<std::string> Run();

  const NetworkCounts& network() const { return network_.counts(); }
  uint64_t events() const { return world_.events_run(); }
  uint64_t steps() const { return verdicts_.size(); }
  absl::Duration took() const { return world_.now() - start_; }  // in virtual time
  // Of messages and of processes, that really happened.
  uint64_t faults() const;
  // Whether the job failed for want of workers, and everybody said so alike.
  bool failed() const { return failed_; }
  // How often each kind of fault of a process really happened.
  const std::map<std::string, int>& happened() const { return happened_; }
  const FaultCoverage& coverage() const { return coverage_; }
  // Which faults these options plan, and which states a job of theirs comes to.
  static std::vector<std::string_view> FaultsOf(const Options& options);
  static std::vector<std::string_view> StatesOf(const Options& options);
  // Evaluations that the verdicts ordered, and those of which not all parts came.
  int evaluations_ordered() const { return evaluations_ordered_; }
  int evaluations_left_out() const { return evaluations_left_out_; }

 private:
  struct Shard {
    std::shared_ptr<Process> process;
    std::unique_ptr<Connector> connector;
    LockedShard* core = nullptr;  // while it runs
    bool killed = false;
    Metrics metrics;
    std::optional<ShardProcess::End> end;
  };

  struct Worker {
    bool slow = false;
    bool skips = false;                 // pulls after some steps
    bool ahead = false;                 // and waits for values when forward needs them
    std::string_view doing = kJoining;  // for FaultCoverage
    bool hit_while_joining = false;     // by something as long as a lease
    bool drained = false;               // the job has sent it away
    std::shared_ptr<Process> process;
    std::unique_ptr<Connector> connector;
    absl::Status end = absl::UnknownError("still at work");
  };

  // Starts one of those that the job has from the beginning, when its time comes.
  void Begin(std::function<void()> start);
  std::shared_ptr<Process> MakeProcess(const std::string& name, int port);
  // how: for happened_; "coordinator restarted at its address" means what it says.
  void StartCoordinator(const std::string& how);
  // The living one with the highest generation; null if there is none.
  CoordinatorProcess* Ruler();
  CoordinatorState Recorded();  // the newest; empty if there is none
  bool HasEnded();              // the job
  Phase CurrentPhase();         // where nobody rules: as it was before
  bool CoordinatorsMayGo() const {
    return options_.coordinator_kills + options_.coordinator_stops + options_.coordinator_rivals +
               options_.coordinator_cuts + options_.disk_faults !=
           0;
  }
  // Somebody is still to be told how it ends. A coordinator that starts later begins another job.
  bool NeedsCoordinator();
  absl::StatusOr<std::string> CoordinatorAddress();
  void StartShard(const std::string& name, int port);
  void ComputeAhead(const std::shared_ptr<Process>& process, std::function<void()> task);
  void PlanShardFaults();
  void PlanScaling();
  // While nobody rules yet, a moment later.
  void Scale(Worker* target);
  void Drain(CoordinatorProcess& ruler, uint32_t ordinal);
  void SetWorkers(CoordinatorProcess& ruler, uint32_t workers);
  // The living one that decides steps; the first one if there is none.
  Shard& StepLeader();
  void StartWorker(int number);
  Network::Transport TransportOf(int worker) const;
  void Train(Worker& worker);
  // Registers, and gives the model its start values where that falls to this worker.
  absl::Status Register(Session& session);
  // Until the job is over.
  absl::Status TakeSteps(Worker& worker, Session& session);
  absl::Status PullAndEvaluate(Worker& worker, Session& session);
  absl::Status WriteGradients(Session& session, const StepPlan& plan);
  // whole: all values that the step was computed from had come.
  void CheckVerdict(const Worker& worker, const Session& session, const StepPlan& plan,
                    const Verdict& verdict, bool whole);
  // A verdict of that job_epoch, as somebody tells it.
  void Record(const std::string& who, const Verdict& verdict, uint64_t job_epoch);
  // Whether what is known is of this epoch, after the job has gone back if it has; false: what is
  // of it counts no more.
  bool IsCurrent(uint64_t job_epoch);
  void Compute(Worker& worker);
  // Computes, and waits for each tensor's values where it needs them. False where some do not come.
  bool Forward(Worker& worker, Session& session);
  absl::Status EvaluateWhatIsDue(Worker& worker, Session& session);
  // That the session's parameters are what the verdicts up to `version` make.
  bool CheckParameters(const std::string& who, const Session& session, uint64_t version,
                       bool at_barrier);
  void PlanFaults();
  void PlanCoordinatorFaults();
  // From all processes, those too that start meanwhile.
  void CutOff(const std::string& address, absl::Duration how_long);
  void Plan(int count, std::string_view kind, std::function<void()> fault);
  // Whether it is to be hit by something as long as its lease; while it joins, once at most: it
  // gives up after a minute.
  bool MayHit(Worker* worker);
  Process& PickProcess();
  Worker* PickWorker();  // a living one; null if there is none
  void Broken(std::string what) { broken_.push_back(std::move(what)); }
  // What must hold when all is over; the others are its parts.
  void CheckEnd();
  int CheckWorkersEnded();  // how many have finished
  void CheckNobodyCountsAsLost(const CoordinatorState& recorded);
  void CheckShardsEnded();
  void CheckLastCheckpoint();
  // Those of the checkpoints, and of bounded and async.
  void EndOtherChecks();
  void CheckCoordinatorsEnded();
  // That no step is missing: among the verdicts, and in the coordinator's count.
  void CheckStepsCounted();
  void CheckEvaluations(const CoordinatorState& recorded);
  // Every sample of each data epoch that is over is in exactly one contribution.
  void CheckSamplesUsedOnce();
  bool CameTooLate(std::string_view end);  // the member that ended so
  bool FailedAlike();
  bool AllEnded() const;
  bool AllMembersEnded() const;

  // job_states.cc. What holds now: of the job, and of the worker that it is about, if any.
  std::vector<std::string_view> States(const Worker* worker);
  void Met(std::string_view fault, const Worker* worker);
  void MetMessage(std::string_view fault, const std::string& from, const std::string& to);
  Worker* FindWorker(const std::string& address);  // the newest; null if it is none's
  // Faults that wait for a state, of the job or of a worker, so that short ones are met too.
  void FireAimed();

  Shard* FindShard(const std::string& name);
  // For OpenCalls, ClockedChecks and ContributionChecks: what a shard, or the coordinator, has now.
  std::optional<OpenCalls::State> Look(const std::string& shard);
  uint32_t LowestContributor(const std::string& shard);
  bool TakesPart(uint32_t contributor, uint32_t attempt);
  // Collects what the observers found.
  void HearChecks();
  // That a worker whose step counts is named by the verdict, with the samples it had.
  void CheckCounted(const Worker& worker, const Session& session, const StepPlan& plan,
                    const Verdict& verdict);
  bool NobodyIsLost() const {
    return options_.kills + options_.long_stops + options_.isolations == 0;
  }
  // Nor does the job go back, or its coordinator.
  bool AllStay() const {
    return NobodyIsLost() && options_.shard_kills == 0 && !CoordinatorsMayGo();
  }

  const Options options_;
  World world_;
  const absl::Time start_ = world_.now();
  Network network_;
  Log silent_;
  std::vector<std::shared_ptr<Process>> processes_;
  WitnessedFiles files_;
  std::vector<std::unique_ptr<CoordinatorProcess>> coordinators_;
  std::map<std::string, absl::Time> cut_off_;  // until when
  Phase phase_ = GATHERING;
  bool restart_is_due_ = false;  // of one that was killed
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<std::unique_ptr<Worker>> workers_;
  VerdictReplay replay_;
  OpenCalls open_calls_;
  LeaseChecks leases_;
  CheckpointChecks checkpoints_;
  ClockedChecks clocked_;                 // in bounded and async
  ContributionChecks contributions_;      // in bounded and async
  uint64_t job_epoch_ = 1;                // of what follows
  std::map<uint64_t, Verdict> verdicts_;  // by step, APPLY and SKIP, as any worker heard them
  std::vector<std::string> broken_;
  bool failed_ = false;
  FaultCoverage coverage_;
  struct Aimed {
    std::string_view state;
    absl::Time until;  // then it happens in any state
    std::function<void()> fault;
  };
  std::vector<Aimed> aimed_;
  Worker* target_ = nullptr;  // of an aimed fault while it happens
  int evaluations_ordered_ = 0;
  int evaluations_left_out_ = 0;
  std::map<std::string, int> happened_;
};

}  // namespace parley

#endif  // PARLEY_TESTS_SIMULATION_JOB_SIMULATION_H_
