#include "tests/contract/test_shard.h"

#include <utility>

#include "common/job/job_file.h"

namespace parley {
namespace {

std::shared_ptr<Outgoing> MakeOutgoing(LockedShard* shard, Connector* connector, Timers* timers) {
  Outgoing::Options options;
  options.shard = shard;
  options.connector = connector;
  options.timers = timers;
  options.patience = absl::Seconds(20);
  options.attempt_timeout = absl::Seconds(2);
  options.on_error = [](const std::string&) {};
  return Outgoing::Make(std::move(options));
}

}  // namespace

TestShard::TestShard(const JobConfig& job, Connector& connector)
    : job_(job),
      connector_(connector),
      caller_(timers_, 1),
      shard_(job, {[this] { timers_->RunAt(absl::InfinitePast(), [this] { OnNews(); }); }, {}}),
      outgoing_(MakeOutgoing(&shard_, &connector, timers_.get())) {}

TestShard::~TestShard() { Stop(); }

void TestShard::Stop() {
  outgoing_->Stop();
  timers_->Stop();  // its tasks use the membership
  membership_.reset();
  FirstCause cause;
  cause.set_text("the test is over");
  shard_.Fail(cause);  // answers what is parked
}

absl::Status TestShard::Join(const std::string& coordinator, const std::string& address) {
  Membership::Options options;
  options.job = job_.name();
  options.job_fingerprint = JobFingerprint(job_);
  options.role = SHARD;
  options.coordinator = coordinator;
  options.address = address;
  options.liveness = Liveness(job_);
  Membership::Listener listener;
  listener.on_state = [this](const WatchReply& state) {
    timers_->RunAt(absl::InfinitePast(), [this, state] { OnState(state); });
  };
  listener.on_failed = [this](const FirstCause& cause) {
    outgoing_->Stop();
    shard_.Fail(cause);
    End(cause.text());
  };
  auto membership = Membership::Join(options, connector_, std::move(listener));
  if (!membership.ok()) return membership.status();
  membership_ = *std::move(membership);
  outgoing_->SetCoordinator(membership_->coordinator(), [this] { return membership_->header(); });
  shard_.Start(membership_->ordinal());  // before any worker has joined, so before there is a view
  timers_->RunAt(absl::InfinitePast(), [this] { TickAgain(); });
  return absl::OkStatus();
}

void TestShard::OnState(const WatchReply& state) {
  if (state.has_view()) (void)shard_.SetView(state.view(), timers_->Now());
  if (state.phase() == FINISHED) {
    membership_->Leave();
    End("");
  }
}

void TestShard::OnNews() {
  LockedShard::News news = shard_.TakeNews();
  if (news.routing != nullptr) outgoing_->Send(std::move(news.outbox), *news.routing);
  outgoing_->Report(std::move(news.verdicts), news.progress);
  membership_->Progress(news.version);
  if (!news.ready || reported_ready_) return;
  reported_ready_ = true;
  RetryOptions retry;
  retry.deadline = timers_->Now() + absl::Seconds(20);
  retry.attempt_timeout = absl::Seconds(2);
  retry.refresh_timeout = absl::Seconds(2);
  caller_.Call<ReportReadyReply>(
      retry,
      [this, version = news.routing->view().start_version()](absl::Time deadline,
                                                             Done<ReportReadyReply> done) {
        ReportReadyRequest request;
        *request.mutable_header() = membership_->header();
        request.set_version(version);
        membership_->coordinator()->ReportReady(request, deadline, std::move(done));
      },
      [](const absl::StatusOr<ReportReadyReply>&) {});
}

void TestShard::TickAgain() {
  shard_.Tick(timers_->Now());
  timers_->RunAt(timers_->Now() + absl::Milliseconds(10), [this] { TickAgain(); });
}

void TestShard::End(const std::string& cause) {
  absl::MutexLock lock(&mu_);
  if (!end_.has_value()) end_ = cause;
}

std::string TestShard::AwaitEnd() {
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(
      +[](std::optional<std::string>* end) { return end->has_value(); }, &end_));
  return *end_;
}

}  // namespace parley
