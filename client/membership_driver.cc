#include "client/membership_driver.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/describe_member.h"
#include "common/utc_text.h"
#include "common/utf8.h"

namespace parley {
namespace {

// How much later than its time is over a preempted member goes by itself: the coordinator's word
// may be on its way. With preemption_grace less than what Slurm leaves of its 30 s.
constexpr absl::Duration kAfterGrace = absl::Seconds(2);
// A message names that time, and is not to name what the call has taken.
constexpr absl::Duration kGraceUnit = absl::Milliseconds(100);

// FailRequest.micros of what is left of the time, where so much of it has passed. 0 there is the
// default: for one that had no time at all.
int64_t MicrosLeft(absl::Duration time, absl::Duration passed) {
  if (time == absl::ZeroDuration()) return 0;
  return absl::ToInt64Microseconds(
      std::max(std::min(time, absl::Ceil(time - passed, kGraceUnit)), absl::Microseconds(1)));
}

MemberState::Options StateOptions(const Membership::Options& options,
                                  const MembershipDriver::Joined& joined, bool may_rejoin) {
  MemberState::Options state;
  state.liveness = options.liveness;
  state.autonomy = options.autonomy;
  state.role = options.role;
  state.ordinal = joined.reply.ordinal();
  Member self;
  self.set_role(options.role);
  self.set_ordinal(joined.reply.ordinal());
  self.set_address(options.address);
  self.set_host(joined.host);
  self.set_pid(joined.pid);
  state.self = Describe(self);
  state.coordinator = joined.coordinator_address;
  state.generation = joined.reply.generation();
  state.may_rejoin = may_rejoin;
  return state;
}

}  // namespace

MembershipDriver::MembershipDriver(Membership::Options options, Connector& connector,
                                   Membership::Listener listener,
                                   std::unique_ptr<CoordinatorFinder> finder, Joined joined)
    : options_(std::move(options)),
      connector_(connector),
      listener_(std::move(listener)),
      finder_(std::move(finder)),
      joined_(std::move(joined)),
      timers_(options_.runtime->MakeTimers()),
      listener_thread_(options_.runtime->MakeTimers()),
      caller_(timers_, joined_.incarnation),
      coordinator_(std::make_shared<SwitchingCoordinator>(joined_.coordinator)),
      state_(StateOptions(options_, joined_, listener_.on_expelled != nullptr), timers_->Now()),
      coordinator_address_(joined_.coordinator_address) {}

void MembershipDriver::Start() {
  Pump();
  ScheduleTick();
}

void MembershipDriver::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stopped_ = true;
  }
  timers_->Stop();
  listener_thread_->Stop();
}

CallHeader MembershipDriver::header() const {
  absl::MutexLock lock(&mu_);
  return Header();
}

CallHeader MembershipDriver::Header() const {
  CallHeader header;
  header.set_job(options_.job);
  header.set_member(joined_.reply.member());
  header.set_incarnation(joined_.incarnation);
  if (state_.watched().has_view()) {
    header.set_job_epoch(state_.watched().view().job_epoch());
    header.set_view_epoch(state_.watched().view().view_epoch());
  }
  return header;
}

void MembershipDriver::Progress(uint64_t last_decided_step, uint64_t job_epoch) {
  absl::MutexLock lock(&mu_);
  ++progress_;
  ++moves_;
  waits_for_.clear();
  state_.Progress(last_decided_step, job_epoch);
}

void MembershipDriver::Waits(uint64_t last_decided_step, uint64_t job_epoch,
                             const std::string& what) {
  absl::MutexLock lock(&mu_);
  ++progress_;
  waits_for_ = what;
  state_.Progress(last_decided_step, job_epoch);
}

void MembershipDriver::AwaitsAnswer(const std::string& what) {
  absl::MutexLock lock(&mu_);
  waits_for_ = what;
}

void MembershipDriver::OnDisk(uint64_t bytes) {
  absl::MutexLock lock(&mu_);
  ++progress_;
  disk_bytes_ += bytes;
}

bool MembershipDriver::hears_coordinator() const {
  absl::MutexLock lock(&mu_);
  return state_.hears_coordinator();
}

std::optional<FirstCause> MembershipDriver::failure() const {
  absl::MutexLock lock(&mu_);
  return state_.failure();
}

void MembershipDriver::ScheduleTick() {
  const absl::Duration tick =
      std::clamp(options_.liveness / 40, absl::Milliseconds(5), absl::Milliseconds(250));
  timers_->RunAt(timers_->Now() + tick, [self = shared_from_this()] {
    self->Pump();
    self->ScheduleTick();
  });
}

void MembershipDriver::Pump() {
  bool heartbeat = false;
  bool watch = false;
  bool status = false;
  std::string leader;
  absl::Time leader_deadline;
  {
    absl::MutexLock lock(&mu_);
    if (stopped_) return;
    const absl::Time now = timers_->Now();
    state_.Tick(now);
    TellOfCoordinator(now);
    CheckFailure();
    if (!heartbeat_open_ && state_.wants_heartbeat(now)) {
      heartbeat = heartbeat_open_ = true;
    }
    if (!watch_open_ && state_.wants_watch(now)) watch = watch_open_ = true;
    if (!status_open_ && state_.wants_status(now)) status = status_open_ = true;
    if (!leader_open_ && state_.wants_leader(now)) {
      leader_open_ = true;
      leader = state_.leader_address();
      leader_deadline = state_.ask_deadline();
    }
  }
  if (heartbeat) SendHeartbeat();
  if (watch) OpenWatch();
  if (status) AskStatus();
  if (!leader.empty()) AskLeader(leader, leader_deadline);
}

void MembershipDriver::LookForCoordinator() {
  finder_->Ask([weak = weak_from_this()](const CoordinatorFinder::Address& address) {
    const std::shared_ptr<MembershipDriver> self = weak.lock();
    if (self == nullptr || !address.ok()) return;  // the file may be in the making
    self->timers_->RunAt(absl::InfinitePast(), [self, at = *address] { self->FoundAt(at); });
  });
}

void MembershipDriver::FoundAt(const std::string& address) {
  {
    absl::MutexLock lock(&mu_);
    if (address == coordinator_address_) return;
    coordinator_address_ = address;
    state_.Moved(address);
  }
  coordinator_->SwitchTo(connector_.ConnectCoordinator(address));
}

void MembershipDriver::SendHeartbeat() {
  HeartbeatRequest request;
  const absl::Time sent = timers_->Now();
  absl::Time deadline;
  {
    absl::MutexLock lock(&mu_);
    // Under one lock: the step is of the header's job_epoch.
    *request.mutable_header() = Header();
    request.set_progress(progress_);
    request.set_moves(moves_);
    request.set_waits_for(ValidUtf8(waits_for_, kMostReasonBytes));
    request.set_disk_bytes(disk_bytes_);
    request.set_step(state_.last_decided_step());
    deadline = sent + state_.heartbeat_timeout();
  }
  coordinator_->Heartbeat(request, deadline,
                          [self = shared_from_this(), sent](absl::StatusOr<HeartbeatReply> reply) {
                            bool moved = false;
                            {
                              absl::MutexLock lock(&self->mu_);
                              self->heartbeat_open_ = false;
                              self->state_.OnHeartbeat(reply.status(), sent, self->timers_->Now(),
                                                       reply.ok() ? reply->generation() : 0);
                              if (reply.ok() && self->state_.MissesNews(reply->revision())) {
                                self->watch_open_ = false;
                              }
                              moved = self->state_.may_have_moved();
                            }
                            if (moved) self->LookForCoordinator();
                            self->Pump();
                          });
}

void MembershipDriver::OpenWatch() {
  WatchRequest request;
  *request.mutable_header() = header();
  uint64_t number = 0;
  {
    absl::MutexLock lock(&mu_);
    request.set_seen_revision(state_.watched().revision());
    number = ++watch_;
  }
  coordinator_->Watch(
      request, timers_->Now() + options_.liveness,
      [self = shared_from_this(), number](const absl::StatusOr<SharedJobState>& reply) {
        {
          absl::MutexLock lock(&self->mu_);
          // How one that was given up ended says nothing.
          if (number != self->watch_ && !reply.ok()) return;
          if (number == self->watch_) self->watch_open_ = false;
          if (self->state_.OnWatch(reply, self->timers_->Now()) && self->listener_.on_state &&
              !self->stopped_) {
            self->listener_thread_->RunAt(
                absl::InfinitePast(), [self, state = *reply] { self->listener_.on_state(state); });
          }
        }
        self->Pump();
      });
}

void MembershipDriver::AskLeader(const std::string& address, absl::Time deadline) {
  std::shared_ptr<ShardClient> client;
  {
    absl::MutexLock lock(&mu_);
    if (leader_ == nullptr || leader_address_ != address) {
      leader_ = connector_.ConnectShard(address);
      leader_address_ = address;
    }
    client = leader_;
  }
  WhyFailedRequest request;
  *request.mutable_header() = header();
  client->WhyFailed(
      request, deadline, [self = shared_from_this()](absl::StatusOr<WhyFailedReply> reply) {
        {
          absl::MutexLock lock(&self->mu_);
          self->leader_open_ = false;
          self->state_.OnLeaderAnswer(
              reply.ok() ? absl::StatusOr<FirstCause>(reply->cause()) : reply.status(),
              self->timers_->Now());
        }
        self->Pump();
      });
}

void MembershipDriver::AskStatus() {
  GetStatusRequest request;
  request.set_job(options_.job);
  absl::Time deadline;
  {
    absl::MutexLock lock(&mu_);
    deadline = timers_->Now() + state_.status_timeout();
  }
  coordinator_->GetStatus(request, deadline,
                          [self = shared_from_this()](absl::StatusOr<GetStatusReply> reply) {
                            {
                              absl::MutexLock lock(&self->mu_);
                              self->status_open_ = false;
                              self->state_.OnStatus(reply, self->timers_->Now());
                            }
                            self->Pump();
                          });
}

void MembershipDriver::TellOfCoordinator(absl::Time now) {
  if (!options_.coordinator_news) return;
  std::string news;
  if (told_lost_.has_value() && state_.hears_coordinator()) {
    news = absl::StrCat("the coordinator at ", coordinator_address_,
                        " answers again; it had not since ", FormatSince(*told_lost_, now));
    told_lost_.reset();
  } else if (!told_lost_.has_value() && state_.coordinator_lost() &&
             !state_.failure().has_value()) {
    // Else the failure says so.
    told_lost_ = state_.last_contact();
    news = absl::StrCat("the coordinator at ", coordinator_address_, " has not answered since ",
                        FormatSince(*told_lost_, now));
    if (options_.autonomy > absl::ZeroDuration()) {
      absl::StrAppend(&news, "; this process goes on without it for ",
                      absl::FormatDuration(options_.autonomy), " at most");
    }
  }
  if (news.empty()) return;
  listener_thread_->RunAt(absl::InfinitePast(), [self = shared_from_this(), news] {
    self->options_.coordinator_news(news);
  });
}

void MembershipDriver::CheckFailure() {
  if (told_end_ || stopped_) return;
  if (state_.expelled()) {
    told_end_ = true;
    listener_thread_->RunAt(absl::InfinitePast(),
                            [self = shared_from_this()] { self->listener_.on_expelled(); });
    return;
  }
  if (!state_.failure().has_value()) return;
  told_end_ = true;
  if (!listener_.on_failed) return;
  listener_thread_->RunAt(
      absl::InfinitePast(),
      [self = shared_from_this(), cause = *state_.failure()] { self->listener_.on_failed(cause); });
}

void MembershipDriver::SendFail(const std::string& reason, bool preempted,
                                std::optional<absl::Duration> checkpoint_time,
                                absl::Time deadline) {
  RetryOptions retry;
  retry.what =
      absl::StrCat("telling the coordinator at ", joined_.coordinator_address, " of the failure");
  retry.deadline = deadline;
  retry.attempt_timeout = options_.liveness / 4;
  retry.refresh_timeout = options_.liveness / 4;
  caller_.Call<FailReply>(
      retry,
      [self = shared_from_this(), reason, preempted, checkpoint_time, began = timers_->Now()](
          absl::Time until, Done<FailReply> done) {
        FailRequest request;
        *request.mutable_header() = self->header();
        request.set_reason(reason);
        request.set_preempted(preempted);
        request.set_checkpoint_first(checkpoint_time.has_value());
        if (checkpoint_time.has_value()) {
          // It counts from when this attempt comes.
          request.set_micros(MicrosLeft(*checkpoint_time, self->timers_->Now() - began));
        }
        self->coordinator_->Fail(request, until, std::move(done));
      },
      [](const absl::StatusOr<FailReply>&) {});
}

void MembershipDriver::Preempt(const std::string& why, absl::Duration time) {
  const std::string reason = ValidUtf8(why, kMostReasonBytes);
  const absl::Time until = timers_->Now() + time + kAfterGrace;
  {
    absl::MutexLock lock(&mu_);
    if (!state_.Preempt(reason, until)) return;
  }
  // Once it is answered it is in the coordinator's log, and so counts for the next one too.
  SendFail(reason, /*preempted=*/true, time, until);
}

FirstCause MembershipDriver::Fail(const std::string& why, bool preempted) {
  // It may have a path of the user's, and goes into messages, those of a step leader's that is
  // asked for the cause too.
  const std::string reason = ValidUtf8(why, kMostReasonBytes);
  // A coordinator that is away is waited for, so that all hear of the same cause; a process that
  // was told to go has no time for that.
  const absl::Time deadline =
      timers_->Now() + options_.liveness + (preempted ? absl::ZeroDuration() : options_.autonomy);
  {
    absl::MutexLock lock(&mu_);
    // The job goes on without it, or has finished: it is nobody's cause, and none comes for it.
    if (state_.expelled() || state_.has_left()) state_.FailWith(reason, preempted);
  }
  if (!failure().has_value())
    SendFail(reason, preempted, /*checkpoint_time=*/std::nullopt, deadline);
  absl::MutexLock lock(&mu_);
  (void)options_.runtime->Await(
      mu_,
      absl::Condition(
          +[](const MembershipDriver* self) ABSL_NO_THREAD_SAFETY_ANALYSIS {
            return self->state_.failure().has_value() || self->state_.expelled();
          },
          static_cast<const MembershipDriver*>(this)),
      deadline);
  state_.FailWith(reason, preempted);
  CheckFailure();
  return *state_.failure();
}

void MembershipDriver::Leave() {
  bool call = false;
  {
    absl::MutexLock lock(&mu_);
    call = !state_.coordinator_lost();
    state_.Leave();
  }
  if (!call) return;
  // One attempt: a coordinator that does not answer will find out by itself.
  LeaveRequest request;
  *request.mutable_header() = header();
  struct Answer {
    absl::Mutex mu;
    bool here ABSL_GUARDED_BY(mu) = false;
  };
  auto answer = std::make_shared<Answer>();
  const absl::Time deadline = timers_->Now() + options_.liveness / 2;
  coordinator_->Leave(request, deadline, [answer](const absl::StatusOr<LeaveReply>&) {
    absl::MutexLock lock(&answer->mu);
    answer->here = true;
  });
  absl::MutexLock lock(&answer->mu);
  (void)options_.runtime->Await(answer->mu, absl::Condition(&answer->here),
                                deadline + absl::Milliseconds(100));
}

void MembershipDriver::Depart() {
  {
    absl::MutexLock lock(&mu_);
    state_.Leave();  // no heartbeat after it
  }
  const absl::Time deadline = timers_->Now() + options_.liveness;
  RetryOptions retry;
  retry.what = absl::StrCat("telling the coordinator at ", joined_.coordinator_address,
                            " that this member goes");
  retry.deadline = deadline;
  retry.attempt_timeout = options_.liveness / 4;
  retry.refresh_timeout = absl::ZeroDuration();
  struct Answer {
    absl::Mutex mu;
    bool here ABSL_GUARDED_BY(mu) = false;
  };
  auto answer = std::make_shared<Answer>();
  caller_.Call<LeaveReply>(
      retry,
      [self = shared_from_this()](absl::Time until, Done<LeaveReply> done) {
        // One that does not answer may have started anew elsewhere: for the next attempt.
        self->LookForCoordinator();
        LeaveRequest request;
        *request.mutable_header() = self->header();
        request.set_drained(true);
        self->coordinator_->Leave(request, until, std::move(done));
      },
      [answer](const absl::StatusOr<LeaveReply>&) {
        absl::MutexLock lock(&answer->mu);
        answer->here = true;
      });
  absl::MutexLock lock(&answer->mu);
  // Whom nobody hears is missed when its lease is over.
  (void)options_.runtime->Await(answer->mu, absl::Condition(&answer->here),
                                deadline + absl::Milliseconds(100));
}

}  // namespace parley
