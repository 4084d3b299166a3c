#ifndef PARLEY_SERVER_PARAMETER_SHARD_SHARD_PROCESS_FIXTURE_H_
#define PARLEY_SERVER_PARAMETER_SHARD_SHARD_PROCESS_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/manual_timers.h"
#include "server/parameter_shard/fake_peers.h"
#include "server/parameter_shard/shard_fixture.h"
#include "server/parameter_shard/shard_process.h"

namespace parley::testing {

inline constexpr absl::Duration kLiveness = absl::Seconds(10);

// What the process did with its place in the job.
struct Place {
  Membership::Listener listener;
  std::optional<FailRequest> failed;
  std::vector<std::string> preempted;
  uint64_t last_progress = 0;
  uint64_t disk_bytes = 0;
  std::string awaits;
  int leaves = 0;
};

// A membership that does nothing of its own.
class FakeMembership final : public Membership {
 public:
  FakeMembership(Place* place, uint32_t ordinal, std::shared_ptr<CoordinatorClient> coordinator)
      : place_(place), ordinal_(ordinal), coordinator_(std::move(coordinator)) {}

  uint64_t member() const override { return 101 + ordinal_; }
  uint32_t ordinal() const override { return ordinal_; }
  CallHeader header() const override {
    CallHeader header;
    header.set_member(member());
    return header;
  }
  std::shared_ptr<CoordinatorClient> coordinator() const override { return coordinator_; }
  void Progress(uint64_t last_decided_step, uint64_t /*job_epoch*/) override {
    place_->last_progress = last_decided_step;
  }
  void AwaitsAnswer(const std::string& what) override { place_->awaits = what; }
  void OnDisk(uint64_t bytes) override { place_->disk_bytes += bytes; }
  FirstCause Fail(const std::string& reason, bool preempted) override {
    place_->failed.emplace();
    place_->failed->set_reason(reason);
    place_->failed->set_preempted(preempted);
    FirstCause cause;
    cause.set_member(member());
    cause.set_text("the cause that counts: " + reason);
    cause.set_preempted(preempted);
    return cause;
  }
  void Preempt(const std::string& reason, absl::Duration time) override {
    place_->preempted.push_back(absl::StrCat(reason, ", ", absl::FormatDuration(time)));
  }
  std::optional<FirstCause> failure() const override { return std::nullopt; }
  void Leave() override { ++place_->leaves; }

 private:
  Place* const place_;
  const uint32_t ordinal_;
  const std::shared_ptr<CoordinatorClient> coordinator_;
};

// One shard's process with one worker, in virtual time; everything around it is the test's.
class ShardProcessTest : public ::testing::Test {
 protected:
  explicit ShardProcessTest(const std::string& preemption_grace = "25s",
                            std::unique_ptr<FileSystem> files = PosixFileSystem())
      : files_(std::move(files)),
        process_{{Job(preemption_grace), &log_, &metrics_, &peers_, files_.get(),
                  std::make_shared<ManualRuntime>(&timers_)}} {}
  ~ShardProcessTest() override { process_.Stop(); }

  static JobConfig Job(const std::string& preemption_grace) {
    JobConfig job = SummingJob();
    job.set_preemption_grace(preemption_grace);
    job.set_liveness("10s");
    job.set_stall_timeout("60s");
    return job;
  }

  void Join(uint32_t ordinal = 0) {
    end_ = process_.Start([&](Membership::Listener listener) {
      place_.listener = std::move(listener);
      return absl::StatusOr<std::unique_ptr<Membership>>(
          std::make_unique<FakeMembership>(&place_, ordinal, peers_.coordinator));
    });
    ASSERT_FALSE(end_.has_value());
  }
  // Lets time pass, and the main thread see to what has come.
  void Pass(absl::Duration time = absl::ZeroDuration()) {
    timers_.Advance(time);
    if (!end_.has_value()) end_ = process_.HandleMail();
    timers_.Advance(absl::ZeroDuration());
  }
  void Tell(const WatchReply& state) {
    place_.listener.on_state(std::make_shared<const WatchReply>(state));
    Pass();
  }
  void TellView(const ClusterView& view) {
    WatchReply state;
    state.set_phase(PREPARING);
    *state.mutable_view() = view;
    Tell(state);
  }
  void TellPhase(Phase phase) {
    WatchReply state;
    state.set_phase(phase);
    Tell(state);
  }
  void TellCheckpoint(uint64_t step, const std::string& folder) {
    WatchReply state;
    state.set_phase(SAVING);
    state.mutable_checkpoint()->set_step(step);
    state.mutable_checkpoint()->set_directory(folder);
    state.mutable_checkpoint()->set_job_epoch(view_.job_epoch());
    Tell(state);
  }
  void TellFailure(uint64_t member, bool preempted = false) {
    FirstCause cause;
    cause.set_text("what failed first");
    cause.set_member(member);
    cause.set_preempted(preempted);
    place_.listener.on_failed(cause);
    Pass();
  }

  // As the worker.
  void Initialize() {
    SetValues();
    Pass();
  }
  // The same, and the main thread has not seen it yet.
  void SetValues() {
    InitializeRequest request;
    *request.mutable_header() = HeaderOf(view_, 1);
    SliceData& data = *request.add_slices();
    data.set_dtype(F32);
    data.set_data(BytesOf({0, 0, 0, 0}));
    process_.shard().Initialize(request, {timers_.Now()},
                                [](const absl::StatusOr<InitializeReply>& reply) {
                                  ASSERT_EQ(reply.status(), absl::OkStatus());
                                });
  }
  void DoStep(uint64_t step) {
    PushRequest push;
    *push.mutable_header() = HeaderOf(view_, 1);
    push.set_step(step);
    SliceData& data = *push.add_slices();
    data.set_dtype(F32);
    data.set_data(BytesOf({1, 1, 1, 1}));
    process_.shard().Push(push, {timers_.Now()}, [](const absl::StatusOr<PushReply>& reply) {
      ASSERT_EQ(reply.status(), absl::OkStatus());
    });
    Complete(step);
  }
  void Complete(uint64_t step) {
    CompleteRequest request;
    *request.mutable_header() = HeaderOf(view_, 1);
    request.set_step(step);
    request.mutable_share()->set_weight(1);
    process_.shard().Complete(request, {timers_.Now(), timers_.Now() + absl::Hours(1)},
                              [](const absl::StatusOr<CompleteReply>&) {});
    Pass(absl::Milliseconds(10));  // of decided steps it hears a little later
  }
  // The answer, once there is one.
  std::shared_ptr<std::optional<absl::Status>> Ask(uint64_t version,
                                                   absl::Duration patience = absl::Hours(1)) {
    PullRequest request;
    *request.mutable_header() = HeaderOf(view_, 1);
    request.set_version(version);
    request.add_slices(0);
    auto answer = std::make_shared<std::optional<absl::Status>>();
    process_.shard().Pull(
        request, {timers_.Now(), timers_.Now() + patience},
        [answer](const absl::StatusOr<PulledVersion>& reply) { *answer = reply.status(); });
    return answer;
  }
  absl::Status Pull(uint64_t version) {
    return Ask(version)->value_or(absl::UnknownError("it is parked"));
  }
  // What a worker hears that asks why the job has failed; empty while that is parked.
  std::shared_ptr<std::string> AskWhy() {
    auto told = std::make_shared<std::string>();
    WhyFailedRequest request;
    *request.mutable_header() = HeaderOf(view_, 1);
    process_.shard().WhyFailed(request, {timers_.Now(), timers_.Now() + absl::Hours(1)},
                               [told](const absl::StatusOr<WhyFailedReply>& reply) {
                                 *told = reply.ok() ? reply->cause().text()
                                                    : std::string(reply.status().message());
                               });
    return told;
  }
  // Joined, with the view, initialized, and the coordinator knows that it is ready.
  void Train() {
    Join();
    TellView(view_);
    Initialize();
    ASSERT_EQ(coordinator().ready.size(), 1u);
    coordinator().ready.Answer();
    TellPhase(TRAINING);
  }
  void ExpectFailedWith(const std::string& reason) {
    ASSERT_TRUE(place_.failed.has_value());
    EXPECT_THAT(place_.failed->reason(), ::testing::HasSubstr(reason));
    EXPECT_FALSE(place_.failed->preempted());
    ASSERT_TRUE(end_.has_value());
    EXPECT_EQ(end_->code, kFailed);
    EXPECT_EQ(end_->last_line, "the cause that counts: " + place_.failed->reason());
    EXPECT_EQ(place_.leaves, 1);
  }

  FakeCoordinator& coordinator() { return *peers_.coordinator; }

  ClusterView view_ = MakeView({});
  ManualTimers timers_;
  FakeConnector peers_;
  Log log_{LogFormat::kText, "shard"};
  Metrics metrics_;
  const std::unique_ptr<FileSystem> files_;
  Place place_;
  ShardProcess process_;
  std::optional<ShardProcess::End> end_;
};

}  // namespace parley::testing

#endif  // PARLEY_SERVER_PARAMETER_SHARD_SHARD_PROCESS_FIXTURE_H_
