#include "tests/contract/test_shard.h"

#include <gtest/gtest.h>

#include <utility>

#include "absl/time/clock.h"
#include "common/job/job_file.h"

namespace parley {
namespace {

// The machine's, but for the incarnation.
class JoiningAs final : public Runtime {
 public:
  explicit JoiningAs(uint64_t incarnation) : incarnation_(incarnation) {}
  absl::Time Now() const override { return real_->Now(); }
  std::shared_ptr<Timers> MakeTimers() override { return real_->MakeTimers(); }
  bool Await(absl::Mutex& mu, const absl::Condition& condition, absl::Time deadline) override {
    return real_->Await(mu, condition, deadline);
  }
  uint64_t DrawIncarnation() override { return incarnation_; }
  int64_t pid() const override { return real_->pid(); }

 private:
  const uint64_t incarnation_;
  const std::shared_ptr<Runtime> real_ = RealRuntime();
};

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

TestShard::TestShard(const JobConfig& job, Connector& connector, Checkpoint checkpoint,
                     uint64_t incarnation, MemorySource* memory)
    : job_(job),
      connector_(connector),
      checkpoint_(std::move(checkpoint)),
      incarnation_(incarnation),
      caller_(timers_, 1),
      shard_(job,
             {[this](bool) { timers_->RunAt(absl::InfinitePast(), [this] { OnNews(); }); }, {}},
             ResourcesOf(memory)),
      outgoing_(MakeOutgoing(&shard_, &connector, timers_.get())) {}

ShardResources TestShard::ResourcesOf(MemorySource* memory) {
  ShardResources resources;
  resources.memory = memory;
  if (memory == nullptr) return resources;
  resources.later = [this](std::function<void()> task) { later_.Run(std::move(task)); };
  resources.later_from = 1;
  return resources;
}

TestShard::~TestShard() { Stop(); }

std::shared_ptr<Outgoing> TestShard::outgoing() {
  absl::MutexLock lock(&mu_);
  return outgoing_;
}

void TestShard::Stop() {
  timers_->Stop();  // its tasks use the membership, and make the one that sends
  outgoing()->Stop();
  membership_.reset();
  shard_.Stop();  // answers what is parked
}

absl::Status TestShard::Join(const std::string& coordinator, const std::string& address) {
  Membership::Options options;
  options.job = job_.name();
  options.job_fingerprint = JobFingerprint(job_);
  options.role = SHARD;
  options.coordinator = coordinator;
  options.address = address;
  options.liveness = Liveness(job_);
  if (incarnation_ != 0) options.runtime = std::make_shared<JoiningAs>(incarnation_);
  Membership::Listener listener;
  listener.on_state = [this](const SharedJobState& state) {
    timers_->RunAt(absl::InfinitePast(), [this, state] { OnState(*state); });
  };
  listener.on_failed = [this](const FirstCause& cause) {
    outgoing()->Stop();
    shard_.Fail(cause);
    End(cause.text());
  };
  auto membership = Membership::Join(options, connector_, std::move(listener));
  if (!membership.ok()) return membership.status();
  membership_ = *std::move(membership);
  shard_.Start(membership_->ordinal());
  timers_->RunAt(absl::InfinitePast(), [this] {
    joined_ = true;
    if (early_.has_value()) OnState(*early_);
    TickAgain();
  });
  return absl::OkStatus();
}

// Nothing of a former epoch is sent or answered in the new one.
void TestShard::StartEpoch(const ClusterView& view) {
  auto next = MakeOutgoing(&shard_, &connector_, timers_.get());
  next->SetCoordinator(membership_->coordinator(), [this, epoch = view.job_epoch()] {
    CallHeader header = membership_->header();
    header.set_job_epoch(epoch);
    return header;
  });
  outgoing()->Stop();
  absl::MutexLock lock(&mu_);
  outgoing_ = std::move(next);
}

absl::Status TestShard::Load(const ClusterView& view) {
  if (view.start_from().empty()) return absl::OkStatus();
  for (const Slice& slice : view.slices()) {
    if (slice.shard() != membership_->ordinal()) continue;
    const std::string values =
        checkpoint_(view.start_from(), view.tensors(static_cast<int>(slice.tensor())), slice);
    SliceStart start;
    start.values = values;
    absl::Status status = shard_.StartSlice(slice.id(), start, timers_->Now());
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

void TestShard::OnState(const WatchReply& state) {
  if (!joined_) {
    early_ = state;
    return;
  }
  if (state.has_view()) {
    const bool is_new = state.view().job_epoch() > job_epoch_;
    if (is_new) StartEpoch(state.view());
    (void)shard_.SetView(state.view(), timers_->Now());
    job_epoch_ = state.view().job_epoch();
    if (is_new) {
      const absl::Status loaded = Load(state.view());
      EXPECT_TRUE(loaded.ok()) << loaded;
    }
  }
  if (state.phase() == FINISHED) {
    membership_->Leave();
    End("");
  }
}

void TestShard::OnNews() {
  LockedShard::News news = shard_.TakeNews();
  if (news.routing == nullptr) return;
  const auto out = outgoing();
  out->Send(std::move(news.outbox), *news.routing);
  out->Report(std::move(news.verdicts), news.progress);
  const uint64_t epoch = news.routing->view().job_epoch();
  membership_->Progress(news.version, epoch);
  if (!news.ready || ready_epoch_ == epoch) return;
  ready_epoch_ = epoch;
  RetryOptions retry;
  retry.deadline = timers_->Now() + absl::Seconds(20);
  retry.attempt_timeout = absl::Seconds(2);
  retry.refresh_timeout = absl::Seconds(2);
  caller_.Call<ReportReadyReply>(
      retry,
      [this, epoch, version = news.routing->view().start_version()](absl::Time deadline,
                                                                    Done<ReportReadyReply> done) {
        ReportReadyRequest request;
        *request.mutable_header() = membership_->header();
        request.mutable_header()->set_job_epoch(epoch);
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

bool TestShard::AwaitEpoch(uint64_t job_epoch) {
  const absl::Time deadline = timers_->Now() + absl::Minutes(1);
  const auto is_there = [&](const Shard* shard) {
    return shard != nullptr && shard->routing() != nullptr &&
           shard->routing()->view().job_epoch() >= job_epoch;
  };
  while (!shard_.Read(is_there)) {
    if (timers_->Now() >= deadline) return false;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

std::string TestShard::AwaitEnd() {
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(
      +[](std::optional<std::string>* end) { return end->has_value(); }, &end_));
  return *end_;
}

}  // namespace parley
