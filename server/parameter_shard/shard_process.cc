#include "server/parameter_shard/shard_process.h"

#include <csignal>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/job/job_file.h"
#include "server/parameter_shard/checkpoint_io.h"

namespace parley {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(50);

const char* SignalName(int signal) {
  switch (signal) {
    case SIGTERM:
      return "SIGTERM";
    case SIGINT:
      return "SIGINT";
    case SIGUSR1:
      return "SIGUSR1";
    default:
      return "a signal";
  }
}

}  // namespace

ShardProcess::ShardProcess(Daemon* daemon, Connector* connector, FileSystem* files)
    : daemon_(daemon),
      connector_(connector),
      files_(files),
      liveness_(Liveness(daemon->job())),
      metrics_(daemon->metrics()),
      caller_(&timers_, RandomIncarnation()),
      shard_(daemon->job(),
             {[this] { timers_.RunAt(absl::InfinitePast(), [this] { HandleNews(); }); },
              [this](LockedShard::Phase phase, absl::Duration spent) {
                metrics_.OnPhase(phase, spent);
              }}) {
  Outgoing::Options options;
  options.shard = &shard_;
  options.connector = connector_;
  options.timers = &timers_;
  // A peer that is dead is found by the coordinator, a dead coordinator by the membership: this is
  // only the bound behind both.
  options.patience = StallTimeout(daemon->job());
  options.attempt_timeout = liveness_;
  options.on_error = [this](const std::string& error) {
    Post([&](Mail& mail) { mail.error = error; });
  };
  options.seed = RandomIncarnation();
  outgoing_ = Outgoing::Make(std::move(options));
}

ShardProcess::~ShardProcess() { Stop(); }

void ShardProcess::Stop() {
  daemon_->OnSignal(nullptr);
  outgoing_->Stop();
  timers_.Stop();
  membership_.reset();
  shard_.Stop();
}

template <class Change>
void ShardProcess::Post(Change change) {
  absl::MutexLock lock(&mu_);
  change(mail_);
}

RetryOptions ShardProcess::Retries(const std::string& what) const {
  RetryOptions retries;
  retries.what = what;
  retries.deadline = absl::Now() + StallTimeout(daemon_->job());
  retries.attempt_timeout = liveness_;
  retries.refresh_timeout = liveness_;
  return retries;
}

ShardProcess::End ShardProcess::Run(absl::Duration join_timeout) {
  daemon_->OnSignal([this](int signal) { Post([&](Mail& mail) { mail.signal = signal; }); });
  Membership::Options options;
  options.job = daemon_->job().name();
  options.job_fingerprint = JobFingerprint(daemon_->job());
  options.role = SHARD;
  options.coordinator = daemon_->flags().coordinator;
  options.address = daemon_->server().address();
  options.metrics_address = daemon_->metrics().address();
  options.liveness = liveness_;
  options.join_timeout = join_timeout;
  Membership::Listener listener;
  listener.on_state = [this](const WatchReply& state) {
    Post([&](Mail& mail) { mail.state = state; });
  };
  listener.on_failed = [this](const FirstCause& cause) {
    Post([&](Mail& mail) { mail.cause = cause; });
  };
  auto membership = Membership::Join(options, *connector_, std::move(listener));
  if (!membership.ok()) {
    const bool wrong =
        absl::IsInvalidArgument(membership.status()) || absl::IsNotFound(membership.status());
    return {wrong ? kWrongUsage : kFailed, std::string(membership.status().message())};
  }
  membership_ = *std::move(membership);
  daemon_->Joined(membership_->ordinal());
  daemon_->log().Info("joined", {{"member", absl::StrCat(membership_->member())},
                                 {"ordinal", absl::StrCat(membership_->ordinal())}});
  outgoing_->SetCoordinator(membership_->coordinator(), [this] { return membership_->header(); });
  shard_.Start(membership_->ordinal());
  TickAgain();

  while (true) {
    const Mail mail = WaitForMail();
    if (mail.cause.has_value()) return Failed(*mail.cause);
    if (mail.signal != 0) {
      return FailWith(absl::StrCat("received ", SignalName(mail.signal)), /*preempted=*/true);
    }
    if (!mail.error.empty()) return FailWith(mail.error, /*preempted=*/false);
    if (mail.state.has_value()) {
      if (mail.state->phase() == FINISHED) {
        daemon_->log().Info("the job has finished");
        membership_->Leave();
        return {kFinished, ""};
      }
      if (absl::Status status = FollowState(*mail.state); !status.ok()) {
        return FailWith(std::string(status.message()), /*preempted=*/false);
      }
    }
    ReportReadyOnce();
    WriteOrderedCheckpoint();
  }
}

void ShardProcess::HandleNews() {
  LockedShard::News news = shard_.TakeNews();
  if (news.routing != nullptr) outgoing_->Send(std::move(news.outbox), *news.routing);
  outgoing_->Report(std::move(news.verdicts));
  membership_->Progress(news.version);
  metrics_.Update(news);
  Post([&](Mail& mail) {
    mu_.AssertHeld();
    routing_ = news.routing;
    // The main thread is not woken for each step.
    mail.news = mail.news || ready_ != news.ready || order_.has_value();
    ready_ = news.ready;
    version_ = news.version;
    if (!news.error.empty()) mail.error = news.error;
  });
}

void ShardProcess::TickAgain() {
  shard_.Tick(timers_.Now());
  timers_.RunAt(timers_.Now() + kTick, [this] { TickAgain(); });
}

ShardProcess::Mail ShardProcess::WaitForMail() {
  absl::MutexLock lock(&mu_);
  const auto has_mail = [this] {
    mu_.AssertHeld();
    return !mail_.empty();
  };
  mu_.Await(absl::Condition(&has_mail));
  return std::exchange(mail_, Mail());
}

absl::Status ShardProcess::FollowState(const WatchReply& state) {
  if (state.has_checkpoint() && (state.checkpoint().step() != written_step_ ||
                                 state.checkpoint().directory() != written_folder_)) {
    absl::MutexLock lock(&mu_);
    order_ = state.checkpoint();
  }
  if (!state.has_view()) return absl::OkStatus();
  const ClusterView& view = state.view();
  if (absl::Status status = shard_.SetView(view, absl::Now()); !status.ok()) return status;
  if (view.start_from().empty() || loaded_epoch_ == view.job_epoch()) return absl::OkStatus();

  auto routing = Routing::Make(view, membership_->ordinal());
  if (!routing.ok()) return routing.status();
  const absl::Time begin = absl::Now();
  absl::Status loaded = LoadCheckpoint(*files_, view.start_from(), **routing,
                                       [this](uint32_t slice, const SliceStart& start) {
                                         return shard_.StartSlice(slice, start, absl::Now());
                                       });
  if (!loaded.ok()) return loaded;
  loaded_epoch_ = view.job_epoch();
  daemon_->log().Info("loaded the checkpoint",
                      {{"folder", view.start_from()},
                       {"version", absl::StrCat(view.start_version())},
                       {"slices", absl::StrCat((*routing)->own_slices().size())},
                       {"seconds", absl::StrCat(absl::ToDoubleSeconds(absl::Now() - begin))}});
  return absl::OkStatus();
}

void ShardProcess::ReportReadyOnce() {
  uint64_t epoch = 0;
  uint64_t version = 0;
  {
    absl::MutexLock lock(&mu_);
    if (!ready_ || routing_ == nullptr) return;
    epoch = routing_->view().job_epoch();
    version = version_;
  }
  if (reported_ready_ == epoch) return;
  reported_ready_ = epoch;
  daemon_->log().Info("ready", {{"version", absl::StrCat(version)}});
  caller_.Call<ReportReadyReply>(
      Retries("telling the coordinator that this shard is ready"),
      [this, version](absl::Time deadline, Done<ReportReadyReply> done) {
        ReportReadyRequest request;
        *request.mutable_header() = membership_->header();
        request.set_version(version);
        membership_->coordinator()->ReportReady(request, deadline, std::move(done));
      },
      [this](absl::StatusOr<ReportReadyReply> reply) {
        if (reply.ok()) return;
        Post([&](Mail& mail) {
          mail.error = absl::StrCat("the coordinator refused that this shard is ready: ",
                                    std::string(reply.status().message()));
        });
      });
}

void ShardProcess::WriteOrderedCheckpoint() {
  CheckpointOrder order;
  std::shared_ptr<const Routing> routing;
  {
    absl::MutexLock lock(&mu_);
    if (!order_.has_value() || routing_ == nullptr) return;
    order = *order_;
    routing = routing_;
  }
  const absl::Time begin = absl::Now();
  ReportCheckpointFileRequest report;
  report.set_step(order.step());
  absl::StatusOr<std::vector<SliceSnapshot>> slices = shard_.Snapshot(order.step());
  // Not decided here yet: the news that it is brings us back.
  if (absl::IsUnavailable(slices.status())) return;
  absl::Status status = slices.status();
  if (slices.ok()) {
    auto file = WriteCheckpointFile(*files_, order.directory(), *routing, *slices);
    status = file.status();
    if (file.ok()) {
      *report.mutable_file() = *file;
      for (const auto& [tensor, steps] : OptimizerSteps(*routing, *slices)) {
        (*report.mutable_optimizer_steps())[tensor] = steps;
      }
    }
  }
  {
    absl::MutexLock lock(&mu_);
    order_.reset();
  }
  written_step_ = order.step();
  written_folder_ = order.directory();
  const absl::Duration spent = absl::Now() - begin;
  if (status.ok()) {
    metrics_.OnCheckpoint(order.step(), spent);
    daemon_->log().Info("wrote its part of the checkpoint",
                        {{"file", absl::StrCat(order.directory(), "/", report.file().name())},
                         {"bytes", absl::StrCat(report.file().bytes())},
                         {"seconds", absl::StrCat(absl::ToDoubleSeconds(spent))}});
  } else {
    report.set_error(std::string(status.message()));
    daemon_->log().Error("could not write its part of the checkpoint",
                         {{"folder", order.directory()}, {"error", report.error()}});
  }
  caller_.Call<ReportCheckpointFileReply>(
      Retries("reporting a checkpoint file to the coordinator"),
      [this, report](absl::Time deadline, Done<ReportCheckpointFileReply> done) mutable {
        *report.mutable_header() = membership_->header();
        membership_->coordinator()->ReportCheckpointFile(report, deadline, std::move(done));
      },
      [this](absl::StatusOr<ReportCheckpointFileReply> reply) {
        if (reply.ok()) return;
        daemon_->log().Warning("the coordinator refused a checkpoint file",
                               {{"error", std::string(reply.status().message())}});
      });
}

ShardProcess::End ShardProcess::FailWith(const std::string& reason, bool preempted) {
  daemon_->log().Error(preempted ? "told to end" : "this shard cannot go on", {{"reason", reason}});
  return Failed(membership_->Fail(reason, preempted));
}

ShardProcess::End ShardProcess::Failed(const FirstCause& cause) {
  outgoing_->Stop();
  shard_.Fail(cause);
  bool leader = false;
  {
    absl::MutexLock lock(&mu_);
    leader = routing_ != nullptr && routing_->is_leader();
  }
  // Nobody else knows the cause where it is the coordinator that is lost: stay for those that ask.
  if (leader && cause.member() == 0 && !cause.preempted()) absl::SleepFor(liveness_ / 2);
  membership_->Leave();
  daemon_->server().Shutdown(absl::Milliseconds(500));
  return {cause.preempted() ? kPreempted : kFailed, cause.text()};
}

}  // namespace parley
