#include "tests/simulation/coordinator_process.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "client/forwarding_coordinator.h"
#include "client/timers.h"
#include "common/job/job_file.h"
#include "server/coordinator/await_rule.h"
#include "server/coordinator/checkpoint_files.h"
#include "server/coordinator/core_options.h"
#include "server/coordinator/log_writer.h"

namespace parley {
namespace {

CoordinatorCore::Options OptionsOf(const JobConfig& job) {
  CoordinatorCore::Options options = CoreOptions(job);
  options.checkpoint_directory = "/job/checkpoints";
  return options;
}

// Shows the verdicts that the step leader reports: also those that no worker lives to hear.
class ListeningCoordinator final : public ForwardingCoordinator<ListeningCoordinator> {
 public:
  ListeningCoordinator(std::shared_ptr<CoordinatorClient> to,
                       std::function<void(const Verdict&, uint64_t job_epoch)> hear)
      : to_(std::move(to)), hear_(std::move(hear)) {}

  template <class Request, class Reply>
  void Forward(CoordinatorMethod<Request, Reply> method, const Request& request,
               absl::Time deadline, Done<Reply> done) {
    (to_.get()->*method)(request, deadline, std::move(done));
  }
  void ReportVerdicts(const ReportVerdictsRequest& request, absl::Time deadline,
                      Done<ReportVerdictsReply> done) override {
    for (const Verdict& verdict : request.verdicts()) hear_(verdict, request.header().job_epoch());
    to_->ReportVerdicts(request, deadline, std::move(done));
  }

 private:
  const std::shared_ptr<CoordinatorClient> to_;
  const std::function<void(const Verdict&, uint64_t)> hear_;
};

// Timers whose tasks come late, as those of one who waits for a disk.
class SlowTimers final : public Timers {
 public:
  SlowTimers(World* world, std::shared_ptr<Timers> timers, absl::Duration late)
      : world_(world), timers_(std::move(timers)), late_(late) {}

  absl::Time Now() const override { return timers_->Now(); }
  void RunAt(absl::Time when, std::function<void()> task) override {
    const absl::Duration late = world_->Between(absl::ZeroDuration(), late_);
    timers_->RunAt(std::max(when, timers_->Now()) + late, std::move(task));
  }
  void Stop() override { timers_->Stop(); }

 private:
  World* const world_;
  const std::shared_ptr<Timers> timers_;
  const absl::Duration late_;
};

}  // namespace

CoordinatorProcess::CoordinatorProcess(std::shared_ptr<Process> process, Surroundings surroundings)
    : process_(std::move(process)),
      around_(std::move(surroundings)),
      connector_(around_.network->MakeConnector(process_)),
      directory_(*around_.files, "/job") {
  process_->Start([this] {
    end_ = Run();
    around_.on_end();
  });
}

void CoordinatorProcess::Sleep(absl::Duration time) {
  const std::shared_ptr<Runtime> runtime = process_->runtime();
  {
    absl::Mutex mu;
    const bool never = false;
    absl::MutexLock lock(&mu);
    (void)runtime->Await(mu, absl::Condition(&never), runtime->Now() + time);
  }
  if (!process_->alive()) throw Killed();
}

absl::StatusOr<GetStatusReply> CoordinatorProcess::Ask(const std::string& address) {
  struct Answer {
    absl::Mutex mu;
    bool here = false;
    absl::StatusOr<GetStatusReply> reply = absl::UnavailableError("no answer");
  };
  const auto answer = std::make_shared<Answer>();
  const std::shared_ptr<Runtime> runtime = process_->runtime();
  const absl::Time deadline = runtime->Now() + Liveness(around_.job) / 4;
  GetStatusRequest request;
  request.set_job(around_.job.name());
  connector_->ConnectCoordinator(address)->GetStatus(
      request, deadline, [answer](absl::StatusOr<GetStatusReply> reply) {
        absl::MutexLock lock(&answer->mu);
        answer->reply = std::move(reply);
        answer->here = true;
      });
  {
    absl::MutexLock lock(&answer->mu);
    (void)runtime->Await(answer->mu, absl::Condition(&answer->here), deadline + absl::Seconds(1));
  }
  if (!process_->alive()) throw Killed();
  absl::MutexLock lock(&answer->mu);
  return answer->reply;
}

absl::Status CoordinatorProcess::Run() {
  SuccessionSeams seams;
  seams.now = [this] { return process_->LocalNow(); };
  seams.wait = [this](absl::Time until) {
    Sleep(std::max(until - process_->LocalNow(), absl::ZeroDuration()));
    return true;
  };
  seams.ask = [this](const std::string& address) { return Ask(address); };
  auto log =
      AwaitRule(*around_.files, directory_, around_.job.name(), Liveness(around_.job), seams);
  if (!log.ok()) return log.status();
  if (auto prepared = directory_.Prepare(); !prepared.ok()) return prepared;
  const absl::Status ruled = Rule(*std::move(log));
  around_.network->Unserve(process_->address());
  return ruled;
}

absl::Status CoordinatorProcess::Rule(JobLog log) {
  const absl::Duration liveness = Liveness(around_.job);
  const std::string& address = process_->address();
  core_ = std::make_shared<LockedCoordinator>(
      OptionsOf(around_.job), [process = process_.get()] { return process->LocalNow(); });
  if (log.last() && !log.last()->state().over()) {
    if (auto restored = core_->Restore(log.last()->state()); !restored.ok()) return restored;
  }
  std::shared_ptr<CoordinatorClient> service =
      std::make_shared<ListeningCoordinator>(core_, around_.hear);
  if (around_.witness) service = around_.witness(std::move(service));
  around_.network->Serve(process_, std::move(service));
  const auto generation = log.Take(
      address, core_->Read([](const CoordinatorCore& core) { return core.DurableState(); }),
      process_->LocalNow());
  if (!generation.ok()) return generation.status();
  LogWriter::Options writing;
  writing.timers =
      std::make_shared<SlowTimers>(around_.world, process_->runtime()->MakeTimers(), around_.disk);
  writing.liveness = liveness;
  writing.log = around_.log;
  writing.on_still_ruling = [this] {
    if (auto named = directory_.ReadAddress(); named.ok() && *named != process_->address()) {
      directory_.WriteAddress(process_->address()).IgnoreError();
    }
  };
  std::optional<LogWriter> writer(std::in_place, std::move(log), *core_, std::move(writing));
  generation_ = *generation;
  core_->Open(*generation, address);
  if (auto written = directory_.WriteAddress(address); !written.ok()) return written;
  while (core_->lost().ok() && !core_->Read([this](const CoordinatorCore& core) {
    return core.MayExit(process_->LocalNow());
  })) {
    Sleep(liveness / 20);
    core_->Tick();
    if (around_.after_tick) core_->Read(around_.after_tick);
    core_->DoFileWork([this](FileWork& work) { return Perform(*around_.files, work); });
  }
  if (!core_->lost().ok()) return core_->lost();
  Sleep(absl::Seconds(1));
  core_->Close();
  for (int i = 0; i < 20 && !core_->AwaitRecorded(absl::ZeroDuration()).ok(); ++i)
    Sleep(liveness / 20);
  writer.reset();
  directory_.RemoveAddress(address);
  return absl::OkStatus();
}

}  // namespace parley
