#include "tests/simulation/job_simulation.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/coordinator_address.h"
#include "client/membership.h"
#include "client/session.h"
#include "common/job/consistency.h"
#include "common/job/job_file.h"
#include "common/nonzero_blocks.h"
#include "server/coordinator/job_log.h"
#include "server/parameter_shard/in_process.h"

namespace parley {
namespace {

// A job that runs for longer does not end; others take some minutes.
constexpr absl::Duration kLimit = absl::Hours(2);

}  // namespace

JobSimulation::JobSimulation(Options options)
    : options_(std::move(options)),
      world_(options_.seed),
      network_(&world_, options_.network),
      silent_(LogFormat::kText, "", [](const std::string&) {}),
      files_([this](std::string what) { Broken(std::move(what)); }),
      replay_(options_.job, options_.model, options_.samples),
      open_calls_(options_.job, [this](const std::string& shard) { return Look(shard); }),
      leases_(Liveness(options_.job)),
      checkpoints_(options_.model,
                   [this](uint64_t version) -> std::optional<std::vector<float>> {
                     if (IsClocked(options_.job)) return clocked_.NamedValues(version);
                     const std::vector<float>* const replayed = replay_.At(version);
                     return replayed == nullptr ? std::nullopt : std::optional(*replayed);
                   }),
      clocked_(
          options_.model, [this](const std::string& shard) { return LowestContributor(shard); },
          [this](uint64_t job_epoch) { return IsCurrent(job_epoch); }),
      contributions_(
          options_.job, options_.model, options_.samples,
          [this](uint32_t contributor, uint32_t attempt) {
            return TakesPart(contributor, attempt);
          },
          [this](uint64_t job_epoch) { return IsCurrent(job_epoch); }) {
  network_.Tell([this](std::string_view fault, const std::string& from, const std::string& to) {
    MetMessage(fault, from, to);
  });
  files_.OnCommitted([this](const std::string& folder) { checkpoints_.Look(files_, folder); });
  (void)files_.CreateDirectories("/job");
  (void)files_.SyncDirectory("/");
  StartCoordinator("coordinator started");
  for (uint32_t i = 0; i < options_.job.cluster().shards(); ++i) {
    Begin([this, i] { StartShard(absl::StrCat("shard-", i), 1000 + static_cast<int>(i)); });
  }
  for (uint32_t i = 0; i < options_.job.cluster().workers(); ++i) {
    Begin([this, i] { StartWorker(static_cast<int>(i)); });
  }
  PlanFaults();
}

void JobSimulation::Begin(std::function<void()> start) {
  if (options_.start_within == absl::ZeroDuration()) return start();
  world_.At(world_.now() + world_.Between(absl::ZeroDuration(), options_.start_within),
            std::move(start));
}

JobSimulation::~JobSimulation() {
  for (const auto& process : processes_) process->Kill();
}

std::shared_ptr<Process> JobSimulation::MakeProcess(const std::string& name, int port) {
  const double drift = (world_.Chance(0.5) ? 1 : -1) * options_.clock_drift *
                       std::uniform_real_distribution<>(0, 1)(world_.random());
  auto process = std::make_shared<Process>(&world_, name, absl::StrCat("host:", port), 1 + drift);
  processes_.push_back(process);
  for (const auto& [address, until] : cut_off_) {
    network_.Cut(address, process->address(), until - world_.now());
  }
  return process;
}

void JobSimulation::StartCoordinator(const std::string& how) {
  ++happened_[how];
  const int number = static_cast<int>(coordinators_.size());
  // At the first one's address if nobody has it, else at one of its own.
  const bool elsewhere =
      how != "coordinator restarted at its address" ||
      std::any_of(coordinators_.begin(), coordinators_.end(), [](const auto& other) {
        return other->process()->address() == "host:1" && other->process()->alive();
      });
  auto process = MakeProcess(absl::StrCat("coordinator-", number),
                             number == 0 || !elsewhere ? 1 : 10 + number);
  CoordinatorProcess::Surroundings around;
  around.world = &world_;
  around.network = &network_;
  around.files = &files_;
  around.log = &silent_;
  around.job = options_.job;
  around.disk = options_.disk;
  around.on_end = [this] {
    // One that its disk has ended is started again by somebody.
    world_.At(world_.now() + Liveness(options_.job) / 4, [this] {
      const bool has_one = std::any_of(coordinators_.begin(), coordinators_.end(),
                                       [](const auto& other) { return other->process()->alive(); });
      if (!has_one && !restart_is_due_ && NeedsCoordinator()) {
        StartCoordinator("coordinator restarted elsewhere");
      }
    });
  };
  around.hear = [this](const Verdict& verdict, uint64_t job_epoch) {
    Record("the coordinator", verdict, job_epoch);
  };
  if (options_.coordinator_load != nullptr) {
    around.witness = [this](std::shared_ptr<CoordinatorClient> served) {
      return options_.coordinator_load->Listen(std::move(served), [this] { return world_.now(); });
    };
  }
  // Whose lease may end when is another matter where coordinators come and go.
  if (!CoordinatorsMayGo() && options_.shard_kills == 0) {
    const auto clock = [process = process.get()] { return process->LocalNow(); };
    around.witness = [this, clock, inner = std::move(around.witness)](
                         std::shared_ptr<CoordinatorClient> served) {
      return leases_.Listen(inner ? inner(std::move(served)) : std::move(served), clock);
    };
    around.after_tick = [this, clock](const CoordinatorCore& core) {
      if (const auto wrong = leases_.AfterTick(core, clock())) Broken(*wrong);
      if (core.StayingContributors() > core.wanted_workers()) {
        Broken(absl::StrCat(core.StayingContributors(), " workers take part, the job wants ",
                            core.wanted_workers()));
      }
    };
  }
  coordinators_.push_back(std::make_unique<CoordinatorProcess>(process, std::move(around)));
}

CoordinatorProcess* JobSimulation::Ruler() {
  CoordinatorProcess* ruler = nullptr;
  for (const auto& coordinator : coordinators_) {
    if (!coordinator->process()->alive() || !coordinator->has_ruled()) continue;
    if (ruler == nullptr || coordinator->generation() > ruler->generation()) {
      ruler = coordinator.get();
    }
  }
  return ruler;
}

CoordinatorState JobSimulation::Recorded() {
  const auto log = JobLog::Open(files_, "/job/log", options_.job.name());
  return log.ok() && log->last() ? log->last()->state() : CoordinatorState();
}

bool JobSimulation::HasEnded() {
  const Phase phase = Recorded().phase();
  return phase == FINISHED || phase == FAILED;
}

bool JobSimulation::NeedsCoordinator() { return !AllMembersEnded() && !Recorded().over(); }

absl::StatusOr<std::string> JobSimulation::CoordinatorAddress() {
  return ResolveCoordinator(files_, "file:/job/coordinator.address");
}

void JobSimulation::StartShard(const std::string& name, int port) {
  Shard& shard = *shards_.emplace_back(std::make_unique<Shard>());
  shard.process = MakeProcess(name, port);
  shard.connector = network_.MakeConnector(shard.process);
  shard.process->Start([this, &shard] {
    const std::shared_ptr<Runtime> runtime = shard.process->runtime();
    ShardProcess::Surroundings surroundings;
    surroundings.job = options_.job;
    surroundings.log = &silent_;
    surroundings.metrics = &shard.metrics;
    surroundings.connector = shard.connector.get();
    surroundings.files = &files_;
    surroundings.runtime = runtime;
    surroundings.resources.ahead = [this, &shard](std::function<void()> task) {
      ComputeAhead(shard.process, std::move(task));
    };
    surroundings.resources.ahead_from = 1;
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
      member.coordinator = "file:/job/coordinator.address";
      member.resolve = [this] { return CoordinatorAddress(); };
      member.address = shard.process->address();
      member.wait_for_place = options_.job.max_restarts() != 0;
      member.liveness = Liveness(options_.job);
      member.autonomy = Autonomy(options_.job);
      member.runtime = runtime;
      return Membership::Join(std::move(member), *shard.connector, std::move(listener));
    });
    shard.core->Read([this](const auto* core) {
      if (core == nullptr || core->counts().ahead_taken == 0) return;
      happened_["update ahead taken"] += static_cast<int>(core->counts().ahead_taken);
      happened_["update ahead dropped"] += static_cast<int>(core->counts().ahead_dropped);
    });
    shard.core = nullptr;
    process.Stop();
    network_.Unserve(shard.process->address());
  });
}

void JobSimulation::ComputeAhead(const std::shared_ptr<Process>& process,
                                 std::function<void()> task) {
  // Some before the call that asks for it is answered, some when it is of no use any more.
  if (world_.Chance(0.5)) return task();
  world_.At(world_.now() + world_.Between(absl::ZeroDuration(), absl::Milliseconds(300)),
            [process, task = std::move(task)]() mutable { process->Run(std::move(task)); });
}

Network::Transport JobSimulation::TransportOf(int worker) const {
  // Of every second job some workers are on the shards' machine.
  if (options_.seed % 2 == 0) {
    return worker % 3 == 2 ? Network::Transport::kPlain : Network::Transport::kShared;
  }
  return options_.seed % 4 == 1 ? Network::Transport::kJoined : Network::Transport::kPlain;
}

void JobSimulation::StartWorker(int number) {
  Worker& worker = *workers_.emplace_back(std::make_unique<Worker>());
  worker.slow = number == 0 && options_.slow_compute > absl::ZeroDuration();
  worker.process = MakeProcess(absl::StrCat("worker-", number), 2000 + number);
  worker.connector = network_.MakeConnector(worker.process, TransportOf(number));
  worker.skips = options_.seed % 4 == 2;
  worker.ahead = options_.seed % 8 >= 4;
  worker.process->Start([this, &worker] { Train(worker); });
}

// What a program of a user's own does with the client library.
void JobSimulation::Train(Worker& worker) {
  Session::Options options;
  options.job = options_.job;
  options.coordinator = "file:/job/coordinator.address";
  options.resolve = [this] { return CoordinatorAddress(); };
  options.address = worker.process->address();
  options.runtime = worker.process->runtime();
  const auto joined = Session::Join(options, *worker.connector);
  worker.end = joined.status();
  if (!joined.ok()) return;
  Session& session = **joined;
  worker.end = TakeSteps(worker, session);
  if (session.drained()) {
    ++happened_["sent away"];
    worker.drained = true;
    worker.end = absl::OkStatus();
    return;
  }
  if (!worker.end.ok()) (void)session.Fail(std::string(worker.end.message()), false);
}

absl::Status JobSimulation::Register(Session& session) {
  if (auto status =
          session.Register(options_.model.Specs(), options_.samples, options_.test_samples);
      !status.ok()) {
    return status;
  }
  if (!session.must_initialize()) return absl::OkStatus();
  const std::vector<std::byte> zeros(options_.model.elements() * sizeof(float));
  std::vector<absl::Span<const std::byte>> values;
  for (size_t tensor = 0; tensor < options_.model.tensors(); ++tensor) {
    values.push_back({zeros.data(), options_.model.size(tensor) * sizeof(float)});
  }
  return session.Initialize(values);
}

absl::Status JobSimulation::TakeSteps(Worker& worker, Session& session) {
  if (auto status = Register(session); !status.ok()) return status;
  if (auto status = PullAndEvaluate(worker, session); !status.ok()) return status;
  bool ahead = false;  // what was pulled is to be looked at when it is here
  while (true) {
    const auto plan = session.NextStep();
    if (!plan.has_value()) {
      worker.doing = kFinishing;
      const auto finished = session.Finish({});
      if (!finished.ok() || *finished) return finished.status();
      if (auto status = PullAndEvaluate(worker, session); !status.ok()) return status;
      continue;
    }
    worker.doing = kComputing;
    const bool whole = Forward(worker, session);
    if (std::exchange(ahead, false) && whole &&
        !CheckParameters(worker.process->name(), session, session.version(), false)) {
      return absl::InternalError("wrong parameters in forward");
    }
    worker.doing = kCompleting;
    if (auto status = WriteGradients(session, *plan); !status.ok()) return status;
    const uint64_t epochs = session.data_epochs();
    const auto verdict = session.Complete(/*loss_sum=*/0);
    if (!verdict.ok()) {
      if (session.drained() && AllStay()) {
        Broken(absl::StrCat(worker.process->name(), " has gone in the midst of step ", plan->step,
                            ", which it had promised"));
      }
      return verdict.status();
    }
    CheckVerdict(worker, session, *plan, *verdict, whole);
    const bool counts = verdict->outcome() != Verdict::STALE;
    // A program need not pull after each step: its next gradients are of older parameters then, and
    // written while shards may still be at this step.
    if (counts && !IsClocked(options_.job) && worker.skips && !verdict->has_evaluation() &&
        world_.Chance(0.3)) {
      continue;
    }
    // Only a pull of the version of a barrier is to be compared; one that has come back meanwhile
    // reads what there is.
    const bool named = counts && session.data_epochs() != epochs;
    const uint64_t version = session.version();
    const uint64_t joined = worker.process->incarnations();
    worker.doing = kPulling;
    ahead = worker.ahead && !IsClocked(options_.job);
    if (auto status = ahead ? session.PullAhead() : session.Pull(); !status.ok()) return status;
    const bool at_barrier =
        named && session.version() == version && worker.process->incarnations() == joined;
    if (!ahead &&
        !CheckParameters(worker.process->name(), session, session.version(), at_barrier)) {
      return absl::InternalError("wrong parameters");
    }
    if (auto status = EvaluateWhatIsDue(worker, session); !status.ok()) return status;
  }
}

absl::Status JobSimulation::PullAndEvaluate(Worker& worker, Session& session) {
  worker.doing = kPulling;
  if (auto status = session.Pull(); !status.ok()) return status;
  return EvaluateWhatIsDue(worker, session);
}

absl::Status JobSimulation::WriteGradients(Session& session, const StepPlan& plan) {
  size_t element = 0;
  for (size_t tensor = 0; tensor < options_.model.tensors(); ++tensor) {
    const absl::Span<std::byte> gradient = session.gradient(tensor);
    const size_t elements = gradient.size() / sizeof(float);
    for (size_t i = 0; i < elements; ++i, ++element) {
      // Each is one slice, so nothing of it goes yet; integer_worker has larger ones.
      if (i == elements / 2 && (plan.step + tensor) % 3 == 0) {
        if (auto status = session.PushUntil(tensor, i * sizeof(float)); !status.ok()) {
          return status;
        }
      }
      const float value =
          options_.model.WrittenBy(plan.samples, !SumsContributions(options_.job), tensor, element);
      std::memcpy(gradient.data() + i * sizeof(float), &value, sizeof(float));
    }
    // In some steps it says which are zeros, else that is found out.
    const absl::Span<const std::byte> bytes = gradient;
    const std::string nonzero =
        (plan.step + tensor) % 2 == 0 ? FindNonzero(bytes, sizeof(float)) : std::string();
    const absl::Status pushed =
        nonzero.empty() ? session.Push(tensor) : session.PushNonzero(tensor, nonzero);
    if (!pushed.ok()) return pushed;
    happened_["zeros left out"] += nonzero.empty() ? 0 : 1;
  }
  return absl::OkStatus();
}

void JobSimulation::CheckVerdict(const Worker& worker, const Session& session, const StepPlan& plan,
                                 const Verdict& verdict, bool whole) {
  if (verdict.outcome() == Verdict::STALE) {
    ++happened_["came late or back"];
    if (NobodyIsLost() && options_.shard_kills == 0 &&
        options_.job.consistency().sync().backup() == 0) {
      Broken(absl::StrCat(worker.process->name(), " is told that step ", plan.step,
                          " does not count for it, where nobody is late or lost"));
    }
    return;
  }
  if (!whole) {
    Broken(absl::StrCat(worker.process->name(), " has not had all values of version ",
                        plan.step - 1, ", and its step ", plan.step, " counts"));
  }
  if (IsClocked(options_.job)) return;
  Record(worker.process->name(), verdict, session.epochs().job);
  CheckCounted(worker, session, plan, verdict);
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
    const bool alone = Ruler() == nullptr;
    if (auto taken = session.ReportEvaluation(part); !taken.ok()) return taken.status();
    if (alone && Ruler() == nullptr) ++happened_["evaluated without a coordinator"];
    if (auto status = session.Pull(); !status.ok()) return status;
    if (!CheckParameters(worker.process->name(), session, session.version(),
                         at_barrier && session.version() == (*due)->version &&
                             worker.process->incarnations() == joined)) {
      return absl::InternalError("wrong parameters after an evaluation");
    }
  }
}

bool JobSimulation::AllEnded() const {
  return AllMembersEnded() &&
         std::none_of(coordinators_.begin(), coordinators_.end(),
                      [](const auto& coordinator) { return coordinator->process()->alive(); });
}

bool JobSimulation::AllMembersEnded() const {
  return std::all_of(shards_.begin(), shards_.end(),
                     [](const auto& shard) { return !shard->process->alive(); }) &&
         std::all_of(workers_.begin(), workers_.end(),
                     [](const auto& worker) { return !worker->process->alive(); });
}

std::vector<std::string> JobSimulation::Run() {
  const absl::Time end = world_.now() + kLimit;
  while (!AllEnded() && broken_.empty() && world_.now() < end &&
         world_.events_run() < options_.most_events) {
    if (!world_.RunNext()) break;
    HearChecks();
    FireAimed();
  }
  if (broken_.empty()) CheckEnd();
  return broken_;
}

bool JobSimulation::Forward(Worker& worker, Session& session) {
  bool whole = true;
  for (size_t tensor = 0; tensor < options_.model.tensors(); ++tensor) {
    if (tensor == options_.model.tensors() / 2) Compute(worker);
    const size_t half = session.parameter(tensor).size() / 2;
    whole = session.AwaitParameterUntil(tensor, half).ok() && whole;
    whole = session.AwaitParameter(tensor).ok() && whole;
  }
  if (!whole) ++happened_["lost values that it had begun to pull"];
  return whole;
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

}  // namespace parley
