#include "tests/simulation/job_simulation.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/membership.h"
#include "client/session.h"
#include "common/job/consistency.h"
#include "common/job/job_file.h"
#include "common/metrics/metrics.h"
#include "server/parameter_shard/in_process.h"
#include "tests/simulation/simulated_model.h"

namespace parley {
namespace {

// A job that runs for longer does not end; others take some minutes and tens of thousands of
// events.
constexpr absl::Duration kLimit = absl::Hours(2);
constexpr uint64_t kMostEvents = 2'000'000;

CoordinatorCore::Options CoreOptions(const JobConfig& job) {
  CoordinatorCore::Options options;
  options.job = job;
  options.fingerprint = JobFingerprint(job);
  options.liveness = Liveness(job);
  options.stall_timeout = StallTimeout(job);
  options.job_directory = "/nowhere";
  options.checkpoint_directory = "/nowhere/checkpoints";
  return options;
}

// Shows the verdicts that the step leader reports: also those that no worker lives to hear.
class ListeningCoordinator final : public CoordinatorClient {
 public:
  ListeningCoordinator(std::shared_ptr<CoordinatorClient> to,
                       std::function<void(const Verdict&)> hear)
      : to_(std::move(to)), hear_(std::move(hear)) {}

#define PARLEY_FORWARD(Method)                                                               \
  void Method(const Method##Request& request, absl::Time deadline, Done<Method##Reply> done) \
      override {                                                                             \
    to_->Method(request, deadline, std::move(done));                                         \
  }
  PARLEY_FORWARD(Join)
  PARLEY_FORWARD(Heartbeat)
  PARLEY_FORWARD(Watch)
  PARLEY_FORWARD(RegisterModel)
  PARLEY_FORWARD(ReportReady)
  PARLEY_FORWARD(ReportEvaluation)
  PARLEY_FORWARD(Finish)
  PARLEY_FORWARD(ReportCheckpointFile)
  PARLEY_FORWARD(Fail)
  PARLEY_FORWARD(Leave)
  PARLEY_FORWARD(GetStatus)
#undef PARLEY_FORWARD
  void ReportVerdicts(const ReportVerdictsRequest& request, absl::Time deadline,
                      Done<ReportVerdictsReply> done) override {
    for (const Verdict& verdict : request.verdicts()) hear_(verdict);
    to_->ReportVerdicts(request, deadline, std::move(done));
  }

 private:
  const std::shared_ptr<CoordinatorClient> to_;
  const std::function<void(const Verdict&)> hear_;
};

}  // namespace

JobSimulation::JobSimulation(Options options)
    : options_(std::move(options)),
      world_(options_.seed),
      network_(&world_, options_.network),
      silent_(LogFormat::kText, "", [](const std::string&) {}),
      replay_(options_.job, options_.samples),
      open_calls_(options_.job, [this](const std::string& shard) { return Look(shard); }),
      leases_(Liveness(options_.job)),
      clocked_([this](const std::string& shard) { return LowestContributor(shard); }),
      contributions_(options_.job, options_.samples,
                     [this](uint32_t contributor, uint32_t attempt) {
                       return TakesPart(contributor, attempt);
                     }) {
  network_.Tell([this](std::string_view fault, const std::string& from, const std::string& to) {
    MetMessage(fault, from, to);
  });
  StartCoordinator();
  for (uint32_t i = 0; i < options_.job.cluster().shards(); ++i) StartShard(static_cast<int>(i));
  for (uint32_t i = 0; i < options_.job.cluster().workers(); ++i) StartWorker(static_cast<int>(i));
  PlanFaults();
}

JobSimulation::~JobSimulation() {
  for (const auto& process : processes_) process->Kill();
}

std::shared_ptr<Process> JobSimulation::MakeProcess(const std::string& name, int port) {
  const double drift = (world_.Chance(0.5) ? 1 : -1) * options_.clock_drift *
                       std::uniform_real_distribution<>(0, 1)(world_.random());
  auto process = std::make_shared<Process>(&world_, name, absl::StrCat("host:", port), 1 + drift);
  processes_.push_back(process);
  return process;
}

void JobSimulation::Coordinator::Tick(absl::Duration period, const std::function<void()>& look) {
  timers->RunAt(timers->Now() + period, [this, period, look] {
    core->Tick();
    look();
    core->DoFileWork([](const FileWork&) { return absl::OkStatus(); });
    Tick(period, look);
  });
}

void JobSimulation::StartCoordinator() {
  coordinator_ = std::make_unique<Coordinator>();
  Coordinator& coordinator = *coordinator_;
  coordinator.process = MakeProcess("coordinator", 1);
  coordinator.core = std::make_shared<InProcessCoordinator>(
      CoreOptions(options_.job),
      [process = coordinator.process.get()] { return process->LocalNow(); });
  coordinator.timers = coordinator.process->runtime()->MakeTimers();
  coordinator.core->Open(/*generation=*/1, coordinator.process->address());
  coordinator.Tick(Liveness(options_.job) / 20, [this, &coordinator] {
    coordinator.core->Read([&](const CoordinatorCore& core) {
      const auto wrong = leases_.AfterTick(core, coordinator.process->LocalNow());
      if (wrong.has_value()) Broken(*wrong);
    });
  });
  network_.Serve(
      coordinator.process,
      leases_.Listen(std::make_shared<ListeningCoordinator>(
                         coordinator.core,
                         [this](const Verdict& verdict) { Record("the coordinator", verdict); }),
                     [process = coordinator.process.get()] { return process->LocalNow(); }));
}

void JobSimulation::StartShard(int ordinal) {
  Shard& shard = *shards_.emplace_back(std::make_unique<Shard>());
  shard.process = MakeProcess(absl::StrCat("shard-", ordinal), 100 + ordinal);
  shard.connector = network_.MakeConnector(shard.process);
  shard.process->Start([this, &shard] {
    const std::shared_ptr<Runtime> runtime = shard.process->runtime();
    const std::unique_ptr<FileSystem> files = PosixFileSystem();  // no checkpoints: never used
    ShardProcess::Surroundings surroundings;
    surroundings.job = options_.job;
    surroundings.log = &silent_;
    surroundings.metrics = &shard.metrics;
    surroundings.connector = shard.connector.get();
    surroundings.files = files.get();
    surroundings.runtime = runtime;
    ShardProcess process(std::move(surroundings));
    std::shared_ptr<ShardClient> service =
        MakeInProcessShardClient(&process.shard(), [&shard] { return shard.process->LocalNow(); });
    std::vector<ShardObserver*> observers = {&open_calls_};
    if (IsClocked(options_.job)) {
      observers.push_back(&clocked_);
      observers.push_back(&contributions_);
    }
    service = Witnessed(shard.process->name(), service, std::move(observers));
    shard.core = &process.shard();
    network_.Serve(shard.process, service);
    shard.end = process.Run([&](Membership::Listener listener) {
      Membership::Options member;
      member.job = options_.job.name();
      member.job_fingerprint = JobFingerprint(options_.job);
      member.role = SHARD;
      member.coordinator = coordinator_->process->address();
      member.address = shard.process->address();
      member.liveness = Liveness(options_.job);
      member.autonomy = Autonomy(options_.job);
      member.runtime = runtime;
      return Membership::Join(std::move(member), *shard.connector, std::move(listener));
    });
    shard.core = nullptr;
    process.Stop();
    network_.Unserve(shard.process->address());
  });
}

void JobSimulation::StartWorker(int number) {
  Worker& worker = *workers_.emplace_back(std::make_unique<Worker>());
  worker.slow = number == 0 && options_.slow_compute > absl::ZeroDuration();
  worker.process = MakeProcess(absl::StrCat("worker-", number), 200 + number);
  worker.connector = network_.MakeConnector(worker.process);
  worker.process->Start([this, &worker] { Train(worker); });
}

// What a program of a user's own does with the client library.
void JobSimulation::Train(Worker& worker) {
  Session::Options options;
  options.job = options_.job;
  options.coordinator = coordinator_->process->address();
  options.address = worker.process->address();
  options.runtime = worker.process->runtime();
  const auto joined = Session::Join(options, *worker.connector);
  worker.end = joined.status();
  if (!joined.ok()) return;
  Session& session = **joined;
  const auto run = [&]() -> absl::Status {
    if (auto status = session.Register(Tensors(), options_.samples, options_.test_samples);
        !status.ok()) {
      return status;
    }
    if (session.must_initialize()) {
      const std::vector<std::byte> zeros(1024);
      std::vector<absl::Span<const std::byte>> values;
      for (const auto& [name, count] : kTensors) {
        values.push_back({zeros.data(), static_cast<size_t>(count) * sizeof(float)});
      }
      if (auto status = session.Initialize(values); !status.ok()) return status;
    }
    worker.doing = kPulling;
    if (auto status = session.Pull(); !status.ok()) return status;
    if (auto status = EvaluateWhatIsDue(worker, session); !status.ok()) return status;
    while (const auto plan = session.NextStep()) {
      worker.doing = kComputing;
      Compute(worker);
      worker.doing = kCompleting;
      size_t element = 0;
      for (size_t tensor = 0; tensor < kTensors.size(); ++tensor) {
        const absl::Span<std::byte> gradient = session.gradient(tensor);
        for (size_t i = 0; i < gradient.size() / sizeof(float); ++i, ++element) {
          const float value =
              WrittenBy(plan->samples, !SumsContributions(options_.job), tensor, element);
          std::memcpy(gradient.data() + i * sizeof(float), &value, sizeof(float));
        }
        if (auto status = session.Push(tensor); !status.ok()) return status;
      }
      const uint64_t epochs = session.data_epochs();
      const auto verdict = session.Complete(/*loss_sum=*/0);
      if (!verdict.ok()) return verdict.status();
      if (verdict->outcome() == Verdict::STALE) {
        ++happened_["came late or back"];
        if (NobodyIsLost() && options_.job.consistency().sync().backup() == 0) {
          Broken(absl::StrCat(worker.process->name(), " is told that step ", plan->step,
                              " does not count for it, where nobody is late or lost"));
        }
      } else if (!IsClocked(options_.job)) {
        Record(worker.process->name(), *verdict);
        CheckCounted(worker, session, *plan, *verdict);
      }
      // Only a pull of the version of a barrier is to be compared; one that has come back meanwhile
      // reads what there is.
      const bool named = verdict->outcome() != Verdict::STALE && session.data_epochs() != epochs;
      const uint64_t version = session.version();
      const uint64_t joined = worker.process->incarnations();
      worker.doing = kPulling;
      if (auto status = session.Pull(); !status.ok()) return status;
      const bool at_barrier =
          named && session.version() == version && worker.process->incarnations() == joined;
      if (!CheckParameters(worker.process->name(), session, session.version(), at_barrier)) {
        return absl::InternalError("wrong parameters");
      }
      if (auto status = EvaluateWhatIsDue(worker, session); !status.ok()) return status;
    }
    worker.doing = kFinishing;
    return session.Finish({});
  };
  worker.end = run();
  if (!worker.end.ok()) (void)session.Fail(std::string(worker.end.message()), false);
}

absl::Status JobSimulation::EvaluateWhatIsDue(Worker& worker, Session& session) {
  while (true) {
    const auto due = session.PullEvaluation();
    if (!due.ok()) return due.status();
    if (!due->has_value()) return absl::OkStatus();
    worker.doing = kEvaluating;
    if ((*due)->version < session.version()) ++happened_["evaluated an older version"];
    const bool at_barrier = (*due)->version == session.version();
    const uint64_t joined = worker.process->incarnations();
    if (!CheckParameters(worker.process->name(), session, (*due)->version, at_barrier)) {
      return absl::InternalError("wrong parameters to evaluate");
    }
    Compute(worker);
    Evaluation part;
    part.set_version((*due)->version);
    part.set_epoch((*due)->epoch);
    part.set_samples((*due)->samples.end() - (*due)->samples.begin());
    if (auto status = session.ReportEvaluation(part); !status.ok()) return status;
    if (auto status = session.Pull(); !status.ok()) return status;
    if (!CheckParameters(worker.process->name(), session, session.version(),
                         at_barrier && session.version() == (*due)->version &&
                             worker.process->incarnations() == joined)) {
      return absl::InternalError("wrong parameters after an evaluation");
    }
  }
}

bool JobSimulation::CheckParameters(const std::string& who, const Session& session,
                                    uint64_t version, bool at_barrier) {
  if (IsClocked(options_.job)) {
    // Between barriers each reads something else.
    if (!at_barrier) return true;
    const bool exact = clocked_.applied() == clocked_.AppliedBy(verdicts_, kTensors.size());
    const std::vector<float>* const replayed = exact ? replay_.At(version) : nullptr;
    const auto broken = clocked_.CheckNamed(session, kTensors.size(),
                                            replayed == nullptr ? std::vector<float>() : *replayed);
    if (broken.has_value()) Broken(absl::StrCat(who, " reads ", *broken));
    return !broken.has_value();
  }
  // One that has come back may read a version whose verdict nobody has told yet.
  const std::vector<float>* const replayed = replay_.At(version);
  if (replayed == nullptr) return true;
  const std::vector<float>& expected = *replayed;
  size_t element = 0;
  for (size_t tensor = 0; tensor < kTensors.size(); ++tensor) {
    const absl::Span<const std::byte> values = session.parameter(tensor);
    for (size_t i = 0; i < values.size() / sizeof(float); ++i, ++element) {
      float value = 0;
      std::memcpy(&value, values.data() + i * sizeof(float), sizeof(float));
      if (value == expected[element]) continue;
      Broken(absl::StrCat(who, " reads ", value, " for element ", element, " of version ", version,
                          ", the verdicts make ", expected[element]));
      return false;
    }
  }
  return true;
}

void JobSimulation::Record(const std::string& who, const Verdict& verdict) {
  Verdict said = verdict;
  said.clear_none();
  if (verdict.outcome() == Verdict::RETRY) {
    ++happened_["step retried"];
    return;
  }
  const auto [it, is_new] = verdicts_.emplace(verdict.step(), said);
  if (!is_new && it->second.SerializeAsString() != said.SerializeAsString()) {
    Broken(absl::StrCat(who, " has another verdict of step ", verdict.step(), " than the others"));
  }
  if (!is_new) return;
  if (const auto wrong = replay_.Add(said); wrong.has_value()) Broken(*wrong);
  const uint32_t backup = options_.job.consistency().sync().backup();
  const uint32_t quorum = options_.job.cluster().workers() - backup;
  if (!IsClocked(options_.job) && NobodyIsLost() &&
      static_cast<uint32_t>(said.shares_size()) < quorum) {
    Broken(absl::StrCat("step ", said.step(), " counts ", said.shares_size(),
                        " contributors, the quorum is ", quorum));
  }
}

bool JobSimulation::MayHit(Worker* worker) {
  return worker->doing != kJoining || !std::exchange(worker->hit_while_joining, true);
}

Process& JobSimulation::PickProcess() {
  if (target_ != nullptr) return *target_->process;
  return *processes_[world_.Pick(processes_.size())];
}

JobSimulation::Worker* JobSimulation::PickWorker() {
  if (target_ != nullptr) return target_;
  std::vector<Worker*> living;
  for (const auto& worker : workers_) {
    if (worker->process->alive()) living.push_back(worker.get());
  }
  return living.empty() ? nullptr : living[world_.Pick(living.size())];
}

void JobSimulation::PlanFaults() {
  const absl::Duration liveness = Liveness(options_.job);
  Plan(options_.stops, kStopped, [this, liveness] {
    Process& process = PickProcess();
    if (!process.alive()) return;
    ++happened_["stopped"];
    Met(kStopped, FindWorker(process.address()));
    // Less than the lease, with the heartbeat that may be late before.
    process.Stop(world_.Between(absl::ZeroDuration(), liveness / 4));
  });
  Plan(options_.long_stops, kStoppedLong, [this, liveness] {
    Worker* const worker = PickWorker();
    if (worker == nullptr) return;
    if (!MayHit(worker)) return;
    ++happened_["stopped past its lease"];
    Met(kStoppedLong, worker);
    worker->process->Stop(world_.Between(liveness, 3 * liveness));
  });
  Plan(options_.kills, kKilled, [this, liveness] {
    Worker* const worker = PickWorker();
    if (worker == nullptr) return;
    ++happened_["killed"];
    Met(kKilled, worker);
    worker->process->Kill();
    worker->end = absl::CancelledError("killed");
    world_.At(world_.now() + world_.Between(absl::ZeroDuration(), 2 * liveness), [this] {
      if (coordinator_->core->Read([](const CoordinatorCore& core) {
            return core.phase() == FINISHED || core.phase() == FAILED;
          })) {
        return;
      }
      ++happened_["restarted"];
      Met(kStarted, nullptr);
      StartWorker(static_cast<int>(workers_.size()));
    });
  });
  Plan(options_.cuts, kCut, [this, liveness] {
    // Those between shards matter most, and are the fewest.
    const bool shards = world_.Chance(0.25);
    const Process& a = shards ? *shards_.front()->process : PickProcess();
    const Process& b =
        shards ? *shards_.back()->process : *processes_[world_.Pick(processes_.size())];
    ++happened_["cut"];
    const Worker* const worker = FindWorker(a.address());
    Met(kCut, worker != nullptr ? worker : FindWorker(b.address()));
    network_.Cut(a.address(), b.address(), world_.Between(absl::ZeroDuration(), liveness / 4));
  });
  Plan(options_.isolations, kIsolated, [this, liveness] {
    Worker* const worker = PickWorker();
    if (worker == nullptr) return;
    if (!MayHit(worker)) return;
    ++happened_["isolated"];
    Met(kIsolated, worker);
    const absl::Duration how_long = world_.Between(liveness, 3 * liveness);
    for (const auto& other : processes_) {
      network_.Cut(worker->process->address(), other->address(), how_long);
    }
  });
}

bool JobSimulation::AllEnded() const {
  return std::all_of(shards_.begin(), shards_.end(),
                     [](const auto& shard) { return !shard->process->alive(); }) &&
         std::all_of(workers_.begin(), workers_.end(),
                     [](const auto& worker) { return !worker->process->alive(); });
}

std::vector<std::string> JobSimulation::Run() {
  const absl::Time end = world_.now() + kLimit;
  while (!AllEnded() && broken_.empty() && world_.now() < end &&
         world_.events_run() < kMostEvents) {
    if (!world_.RunNext()) break;
    HearChecks();
    FireAimed();
  }
  if (broken_.empty()) CheckEnd();
  return broken_;
}

void JobSimulation::Compute(Worker& worker) {
  const std::shared_ptr<Runtime> runtime = worker.process->runtime();
  const absl::Duration most = worker.slow ? options_.slow_compute : options_.compute;
  const absl::Duration least = worker.slow ? most / 2 : absl::ZeroDuration();
  absl::Mutex mu;
  const bool never = false;
  absl::MutexLock lock(&mu);
  (void)runtime->Await(mu, absl::Condition(&never), runtime->Now() + world_.Between(least, most));
}

bool JobSimulation::FailedAlike() const {
  std::set<std::string> causes;
  for (const auto& shard : shards_) {
    causes.insert(shard->end.has_value() ? shard->end->last_line : "nothing");
  }
  for (const auto& worker : workers_) {
    if (worker->end.ok()) return false;
    if (absl::IsCancelled(worker->end)) continue;
    // One that comes too late is told so, with the cause.
    std::string cause(worker->end.message());
    const size_t told = cause.find(" is FAILED: ");
    causes.insert(told == std::string::npos ? cause : cause.substr(told + 12));
  }
  return causes.size() == 1 && causes.begin()->find("has not been heard of") != std::string::npos;
}

void JobSimulation::CheckEvaluations() {
  std::map<uint64_t, uint64_t> ordered;  // version -> epoch
  for (const auto& [step, verdict] : verdicts_) {
    if (!verdict.has_evaluation()) continue;
    ordered[verdict.evaluation().version()] = verdict.evaluation().epoch();
  }
  if (IsClocked(options_.job)) {
    uint64_t epoch = 0;
    for (const uint64_t version : clocked_.named()) ordered[version] = ++epoch;
  }
  evaluations_ordered_ = static_cast<int>(ordered.size());
  if (!verdicts_.empty() && ordered.count(verdicts_.rbegin()->first) == 0) {
    Broken("the last version was not to be evaluated");
  }
  const auto status = coordinator_->core->Read([](const CoordinatorCore& core) {
    return core.GetStatus(GetStatusRequest(), absl::InfinitePast());
  });
  if (!status.ok()) return Broken(status.status().ToString());
  for (const Evaluation& whole : status->evaluations()) {
    const auto found = ordered.find(whole.version());
    if (found == ordered.end() || found->second != whole.epoch() ||
        whole.samples() != options_.test_samples) {
      Broken(absl::StrCat("nobody ordered the evaluation of version ", whole.version()));
      continue;
    }
    ordered.erase(found);
  }
  evaluations_left_out_ = static_cast<int>(ordered.size());
  if (options_.all_evaluations_whole && !ordered.empty()) {
    Broken(absl::StrCat("the evaluation of version ", ordered.begin()->first, " is not whole"));
  }
}

void JobSimulation::CheckEnd() {
  failed_ = FailedAlike();
  if (failed_) return;
  if (!AllEnded()) {
    Broken(absl::StrCat("after ", absl::FormatDuration(world_.now() - start_), ", ",
                        world_.events_run(), " events and ", verdicts_.size(),
                        " steps not all processes have ended"));
  }
  int finished = 0;
  for (const auto& worker : workers_) {
    finished += worker->end.ok();
    // One that comes when the job is over has nothing to do.
    if (worker->end.ok() || absl::IsCancelled(worker->end)) continue;
    if (worker->end.message().find("FINISHED") != absl::string_view::npos) continue;
    Broken(absl::StrCat(worker->process->name(), " ended with ", worker->end.ToString()));
  }
  // All may have been killed after the last step.
  const bool job_finished = coordinator_->core->Read(
      [](const CoordinatorCore& core) { return core.phase() == FINISHED; });
  if (finished == 0 && !job_finished) Broken("no worker has finished");
  for (const auto& shard : shards_) {
    if (shard->end.has_value() && shard->end->code == kFinished) continue;
    Broken(absl::StrCat(shard->process->name(), " ended with ",
                        shard->end.has_value() ? shard->end->last_line : "nothing"));
  }
  for (const std::string& what : clocked_.broken()) Broken(what);
  for (const auto& [what, times] : clocked_.happened()) happened_[what] += times;
  if (!verdicts_.empty() && verdicts_.rbegin()->first != verdicts_.size()) {
    Broken(absl::StrCat(verdicts_.size(), " verdicts of ", verdicts_.rbegin()->first, " steps"));
  }
  const uint64_t reported =
      coordinator_->core->Read([](const CoordinatorCore& core) { return core.progress().step(); });
  if (reported != verdicts_.size()) {
    Broken(
        absl::StrCat("the coordinator counts ", reported, " steps, there were ", verdicts_.size()));
  }
  CheckEvaluations();
  // Every sample of each data epoch that is over is in exactly one contribution.
  std::map<uint64_t, std::map<uint64_t, int>> used;  // by epoch, then position
  for (const auto& [step, verdict] : verdicts_) {
    for (const Share& share : verdict.shares()) {
      for (const SampleRange& range : share.ranges()) {
        for (uint64_t i = range.begin(); i < range.end(); ++i) ++used[verdict.data_epoch()][i];
      }
    }
  }
  for (const auto& [epoch, positions] : used) {
    const bool over = epoch + 1 < used.size() || options_.job.has_epochs();
    if (over && positions.size() != options_.samples) {
      Broken(absl::StrCat("data epoch ", epoch, " used ", positions.size(), " samples of ",
                          options_.samples));
    }
    for (const auto& [position, times] : positions) {
      if (times == 1) continue;
      Broken(absl::StrCat("sample ", position, " of data epoch ", epoch, " was used ", times,
                          " times"));
    }
  }
}

}  // namespace parley
