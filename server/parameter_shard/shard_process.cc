#include "server/parameter_shard/shard_process.h"

#include <algorithm>
#include <csignal>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/daemon/signals.h"
#include "common/job/job_file.h"
#include "common/utf8.h"

namespace parley {
namespace {

// What no other shard waits for is gathered so long: of fast steps, and since to tell it takes as
// much of a core as a step of a few MiB, which the next step then waits for.
constexpr absl::Duration kNewsDelay = absl::Milliseconds(10);

// How long the disk's thread has at the end, and the main thread to hear of it: with
// preemption_grace, and what the membership adds, less than what Slurm leaves of its 30 s.
constexpr absl::Duration kLastWord = absl::Seconds(2);

std::string PreemptedBy(int signal) { return absl::StrCat("preempted by ", SignalName(signal)); }

uint64_t EpochOf(const std::shared_ptr<const Routing>& routing) {
  return routing == nullptr ? 0 : routing->view().job_epoch();
}

}  // namespace

ShardProcess::ShardProcess(Surroundings surroundings)
    : job_(std::move(surroundings.job)),
      log_(surroundings.log),
      files_(surroundings.files),
      leave_(std::move(surroundings.leave)),
      runtime_(surroundings.runtime),
      timers_(runtime_->MakeTimers()),
      connector_(surroundings.connector),
      disk_(runtime_->MakeTimers()),
      liveness_(Liveness(job_)),
      metrics_(*surroundings.metrics),
      caller_(timers_, runtime_->DrawIncarnation()),
      shard_(job_,
             {[this](bool urgent) { OnNews(urgent); },
              [this](LockedShard::Phase phase, absl::Duration spent) {
                metrics_.OnPhase(phase, spent);
              }},
             std::move(surroundings.resources)) {
  (void)OutgoingOf(0);
}

ShardProcess::~ShardProcess() { Stop(); }

std::shared_ptr<Outgoing> ShardProcess::OutgoingOf(uint64_t job_epoch) {
  std::shared_ptr<Outgoing> former;
  {
    absl::MutexLock lock(&mu_);
    if (outgoing_ != nullptr && (outgoing_epoch_ == job_epoch || !sends_)) return outgoing_;
    former = outgoing_;
  }
  if (former != nullptr) former->Stop();
  Outgoing::Options options;
  options.shard = &shard_;
  options.connector = connector_;
  options.timers = timers_.get();
  // A peer that is dead is found by the coordinator, a dead coordinator by the membership: this is
  // only the bound behind both.
  options.patience = Patience(job_);
  options.attempt_timeout = liveness_;
  options.on_error = [this](const std::string& error) {
    Post([&](Mail& mail) { mail.error = error; });
  };
  options.seed = runtime_->DrawIncarnation();
  std::shared_ptr<Outgoing> next = Outgoing::Make(std::move(options));
  if (membership_ != nullptr) {
    next->SetCoordinator(membership_->coordinator(),
                         [this, job_epoch] { return HeaderOf(job_epoch); });
  }
  absl::MutexLock lock(&mu_);
  if (!sends_) next->Stop();
  outgoing_ = next;
  outgoing_epoch_ = job_epoch;
  return next;
}

std::shared_ptr<Outgoing> ShardProcess::outgoing() const {
  absl::MutexLock lock(&mu_);
  return outgoing_;
}

void ShardProcess::StopSending() {
  std::shared_ptr<Outgoing> last;
  {
    absl::MutexLock lock(&mu_);
    sends_ = false;
    last = outgoing_;
  }
  last->Stop();
}

CallHeader ShardProcess::HeaderOf(uint64_t job_epoch) const {
  CallHeader header = membership_->header();
  header.set_job_epoch(job_epoch);
  return header;
}

void ShardProcess::Stop() {
  BeginEnd();
  StopSending();
  // The disk's thread looks up between two tensors; where it is in the kernel nobody can help it.
  if (leave_ && end_.has_value()) {
    timers_->RunAt(timers_->Now() + kLastWord, [this, end = *end_] { leave_(end); });
  }
  disk_->Stop();
  timers_->Stop();
  membership_.reset();
  shard_.Stop();
}

void ShardProcess::Post(absl::FunctionRef<void(Mail&)> change) {
  absl::MutexLock lock(&mu_);
  change(mail_);
}

void ShardProcess::OnSignal(int signal) {
  absl::Duration time;
  {
    absl::MutexLock lock(&signal_mu_);
    // The one that leaves the least time.
    if (signal_ != 0 && signal_ != SIGUSR1 && signal != SIGINT) return;
    signal_ = signal;
    if (signal_to_ != nullptr) time = TellOfSignal();
  }
  LogThatItGoesOn(signal, time);
}

absl::Duration ShardProcess::TellOfSignal() {
  const absl::Duration time = signal_ == SIGUSR1 ? WarningGrace(job_) : PreemptionGrace(job_);
  // Ctrl-C, or no time for a checkpoint.
  if (signal_ == SIGINT || time == absl::ZeroDuration()) {
    Post([signal = signal_](Mail& mail) { mail.signal = signal; });
    timers_->RunAt(timers_->Now() + liveness_, [this] { LeaveIfUnread(); });
    return absl::ZeroDuration();
  }
  signal_to_->Preempt(PreemptedBy(signal_), time);
  return time;
}

void ShardProcess::LogThatItGoesOn(int signal, absl::Duration time) {
  if (time == absl::ZeroDuration()) return;
  log_->Warning("told to end: goes on until a checkpoint is whole",
                {{"signal", SignalName(signal)}, {"at_most", absl::FormatDuration(time)}});
}

void ShardProcess::BeginEnd() {
  absl::MutexLock passing_on(&signal_mu_);
  signal_to_ = nullptr;
  absl::MutexLock lock(&mu_);
  ends_ = true;
}

void ShardProcess::LeaveIfUnread() {
  std::optional<End> end;
  {
    absl::MutexLock lock(&mu_);
    if (ends_) return;
    if (mail_.cause.has_value()) {
      end = End{mail_.cause->preempted() ? kPreempted : kFailed, mail_.cause->text()};
    } else if (mail_.signal != 0) {
      end = End{kPreempted, absl::StrCat(PreemptedBy(mail_.signal),
                                         " while a file is read that does not come")};
    }
  }
  if (leave_ && end.has_value()) leave_(*end);
}

RetryOptions ShardProcess::Retries(const std::string& what) const {
  RetryOptions retries;
  retries.what = what;
  retries.deadline = timers_->Now() + Patience(job_);
  retries.attempt_timeout = liveness_;
  retries.refresh_timeout = liveness_;
  return retries;
}

ShardProcess::End ShardProcess::Run(const Join& join) {
  std::optional<End> end = Start(join);
  while (!end.has_value()) {
    AwaitMail();
    end = HandleMail();
  }
  return *end;
}

std::optional<ShardProcess::End> ShardProcess::Start(const Join& join) {
  Membership::Listener listener;
  listener.on_state = [this](const SharedJobState& state) {
    Post([&](Mail& mail) { mail.state = state; });
  };
  listener.on_failed = [this](const FirstCause& cause) {
    Post([&](Mail& mail) { mail.cause = cause; });
    timers_->RunAt(timers_->Now() + kLastWord, [this] { LeaveIfUnread(); });
  };
  auto membership = join(std::move(listener));
  if (!membership.ok()) {
    const bool wrong =
        absl::IsInvalidArgument(membership.status()) || absl::IsNotFound(membership.status());
    end_ = End{wrong ? kWrongUsage : kFailed, std::string(membership.status().message())};
    return end_;
  }
  membership_ = *std::move(membership);
  log_->Info("joined", {{"member", absl::StrCat(membership_->member())},
                        {"ordinal", absl::StrCat(membership_->ordinal())}});
  outgoing()->SetCoordinator(membership_->coordinator(), [this] { return HeaderOf(0); });
  shard_.Start(membership_->ordinal());
  TickAgain();
  int signal = 0;
  absl::Duration time;
  {
    absl::MutexLock lock(&signal_mu_);
    signal_to_ = membership_.get();
    signal = signal_;
    if (signal != 0) time = TellOfSignal();
  }
  LogThatItGoesOn(signal, time);
  return std::nullopt;
}

std::optional<ShardProcess::End> ShardProcess::HandleMail() {
  Mail mail;
  Post([&](Mail& here) { mail = std::exchange(here, Mail()); });
  if (end_.has_value()) {
    if (!mail.stayed) return std::nullopt;
    membership_->Leave();
    return end_;
  }
  if (mail.cause.has_value()) return Failed(*mail.cause);
  if (mail.signal != 0) return FailWith(PreemptedBy(mail.signal), /*preempted=*/true);
  if (!mail.error.empty()) return FailWith(mail.error, /*preempted=*/false);
  if (mail.load && mail.state == nullptr) mail.state = state_;
  if (mail.state != nullptr) {
    state_ = mail.state;
    if (mail.state->phase() == FINISHED) {
      log_->Info("the job has finished");
      BeginEnd();
      membership_->Leave();
      end_ = End{kFinished, ""};
      return end_;
    }
    if (absl::Status status = FollowState(*mail.state); !status.ok()) {
      return FailWith(std::string(status.message()), /*preempted=*/false);
    }
  }
  ReportReadyOnce();
  WriteOrderedCheckpoint();
  return std::nullopt;
}

void ShardProcess::TellWaits(WaitsReply& reply) {
  const absl::Time now = timers_->Now();
  shard_.TellWaits(now, reply);
  for (Wait& wait : outgoing()->Waits(now)) *reply.add_waits() = std::move(wait);
  absl::MutexLock lock(&mu_);
  if (!order_.has_value() || reply.step() < order_->step()) return;
  // Its own work; at the end the core, which knows nothing of files, says that it waits for that.
  if (reply.step() == order_->step()) reply.clear_waits();
  Wait* const wait = reply.add_waits();
  wait->set_what(absl::StrCat("writing its file of the checkpoint ", order_->directory()));
  wait->set_seconds(std::max(0.0, absl::ToDoubleSeconds(now - ordered_at_)));
  wait->set_step(order_->step());
}

void ShardProcess::LogViews(const std::vector<Verdict>& verdicts) {
  for (const Verdict& verdict : verdicts) {
    {
      absl::MutexLock lock(&mu_);
      // The threads that bring news may overtake each other.
      if (verdict.view_epoch() <= governing_view_) continue;
      governing_view_ = verdict.view_epoch();
    }
    const bool again = verdict.outcome() == Verdict::RETRY;
    log_->Info("a view governs", {{"view_epoch", absl::StrCat(verdict.view_epoch())},
                                  {"from_step", absl::StrCat(verdict.step() + (again ? 0 : 1))},
                                  {"from_attempt", absl::StrCat(again ? verdict.attempt() + 1 : 0)},
                                  {"contributors", absl::StrJoin(verdict.contributors(), ",")}});
  }
}

void ShardProcess::OnNews(bool urgent) {
  const bool waits = news_waits_.exchange(true);
  if (urgent) {
    timers_->RunAt(absl::InfinitePast(), [this] { HandleNews(); });
  } else if (!waits) {
    timers_->RunAt(timers_->Now() + kNewsDelay, [this] { HandleNews(); });
  }
}

void ShardProcess::HandleNews() {
  news_waits_ = false;
  LockedShard::News news = shard_.TakeNews();
  if (news.routing != nullptr) {
    const uint64_t job_epoch = news.routing->view().job_epoch();
    const std::shared_ptr<Outgoing> outgoing = OutgoingOf(job_epoch);
    outgoing->Send(std::move(news.outbox), *news.routing);
    LogViews(news.verdicts);
    outgoing->Report(std::move(news.verdicts), news.progress);
    membership_->Progress(news.version, job_epoch);
  }
  metrics_.Update(news);
  if (news.reservation) disk_->RunAt(absl::InfinitePast(), std::move(news.reservation));
  Post([&](Mail& mail) {
    mu_.AssertHeld();
    // The main thread is not woken for each step.
    mail.news = mail.news || ready_ != news.ready || order_.has_value() ||
                EpochOf(routing_) != EpochOf(news.routing);
    routing_ = news.routing;
    ready_ = news.ready;
    if (!news.error.empty()) mail.error = news.error;
  });
}

void ShardProcess::TellWhoDoesNotAnswer(absl::Time now) {
  const double long_ago = absl::ToDoubleSeconds(StallTimeout(job_) / 4);
  std::string what;
  for (const Wait& wait : outgoing()->Waits(now)) {
    if (wait.seconds() < long_ago) continue;
    absl::StrAppend(&what, what.empty() ? "awaits " : ", and ", wait.what());
  }
  membership_->AwaitsAnswer(what);
}

void ShardProcess::TickAgain() {
  shard_.Tick(timers_->Now());
  TellWhoDoesNotAnswer(timers_->Now());
  // A parked call that has waited too long is answered this much later at most; its caller keeps
  // the time itself.
  const absl::Duration tick =
      std::clamp(liveness_ / 40, absl::Milliseconds(5), absl::Milliseconds(250));
  timers_->RunAt(timers_->Now() + tick, [this] { TickAgain(); });
}

void ShardProcess::AwaitMail() {
  absl::MutexLock lock(&mu_);
  const auto has_mail = [this] {
    mu_.AssertHeld();
    return !mail_.empty();
  };
  (void)runtime_->Await(mu_, absl::Condition(&has_mail), absl::InfiniteFuture());
}

absl::Status ShardProcess::FollowState(const WatchReply& state) {
  if (state.generation() > generation_) {
    // It may not have seen the last verdicts, and nobody else tells it of them.
    if (generation_ != 0) outgoing()->ReportAgain();
    generation_ = state.generation();
  }
  FollowOrder(state);
  if (!state.has_view()) return absl::OkStatus();
  const ClusterView& view = state.view();
  // One that has come for a lost shard is in no view until all go back.
  const bool takes_part =
      std::any_of(view.members().begin(), view.members().end(),
                  [&](const Member& member) { return member.id() == membership_->member(); });
  if (!takes_part) return absl::OkStatus();
  if (absl::Status status = shard_.SetView(view, timers_->Now()); !status.ok()) return status;
  shard_.FollowCheckpoints(state.checkpoints_asked(), state.checkpoint_ended(), timers_->Now());
  if (view.start_from().empty() || loaded_epoch_ == view.job_epoch()) return absl::OkStatus();

  return Load(view);
}

void ShardProcess::ReportReadyOnce() {
  uint64_t epoch = 0;
  uint64_t version = 0;
  {
    absl::MutexLock lock(&mu_);
    if (!ready_ || routing_ == nullptr) return;
    epoch = routing_->view().job_epoch();
    // Not the shard's version: fast workers may have decided steps by now.
    version = routing_->view().start_version();
  }
  if (reported_ready_ == epoch) return;
  reported_ready_ = epoch;
  log_->Info("ready", {{"version", absl::StrCat(version)}});
  ReportReady(epoch, version, "");
}

void ShardProcess::ReportReady(uint64_t epoch, uint64_t version, const std::string& damage) {
  caller_.Call<ReportReadyReply>(
      Retries(damage.empty() ? "telling the coordinator that this shard is ready"
                             : "telling the coordinator that the checkpoint is damaged"),
      [this, version, epoch, damage](absl::Time deadline, Done<ReportReadyReply> done) {
        ReportReadyRequest request;
        *request.mutable_header() = HeaderOf(epoch);
        request.set_version(version);
        request.set_damage(ValidUtf8(damage, kMostReasonBytes));
        membership_->coordinator()->ReportReady(request, deadline, std::move(done));
      },
      [this](absl::StatusOr<ReportReadyReply> reply) {
        // Aborted: all have gone back again meanwhile, or this shard is fenced. The state tells.
        if (reply.ok() || absl::IsAborted(reply.status())) return;
        Post([&](Mail& mail) {
          mail.error = absl::StrCat("the coordinator refused to hear whether this shard is ready: ",
                                    std::string(reply.status().message()));
        });
      });
}

std::optional<ShardProcess::End> ShardProcess::FailWith(const std::string& reason, bool preempted) {
  BeginEnd();
  log_->Error(preempted ? "told to end" : "this shard cannot go on", {{"reason", reason}});
  return Failed(membership_->Fail(reason, preempted));
}

std::optional<ShardProcess::End> ShardProcess::Failed(const FirstCause& cause) {
  BeginEnd();
  StopSending();
  shard_.Fail(cause);
  bool leader = false;
  {
    absl::MutexLock lock(&mu_);
    leader = routing_ != nullptr && routing_->is_leader();
  }
  end_ = End{cause.preempted() ? kPreempted : kFailed, cause.text()};
  // Nobody else knows the cause where it is the coordinator that is lost: stay for those that ask.
  if (leader && cause.member() == 0 && !cause.preempted()) {
    timers_->RunAt(timers_->Now() + liveness_ / 2,
                   [this] { Post([](Mail& mail) { mail.stayed = true; }); });
    return std::nullopt;
  }
  membership_->Leave();
  return end_;
}

}  // namespace parley
