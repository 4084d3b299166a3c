#include "server/parameter_shard/shard_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "client/manual_timers.h"
#include "server/parameter_shard/fake_peers.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLiveness = absl::Seconds(10);

// What the process did with its place in the job.
struct Place {
  Membership::Listener listener;
  std::optional<FailRequest> failed;
  uint64_t last_progress = 0;
  int leaves = 0;
};

// A membership that does nothing of its own.
class FakeMembership final : public Membership {
 public:
  FakeMembership(Place* place, uint32_t ordinal, std::shared_ptr<CoordinatorClient> coordinator)
      : place_(place), ordinal_(ordinal), coordinator_(std::move(coordinator)) {}

  uint64_t member() const override { return 101 + ordinal_; }
  uint32_t ordinal() const override { return ordinal_; }
  std::string job_directory() const override { return ""; }
  CallHeader header() const override {
    CallHeader header;
    header.set_member(member());
    return header;
  }
  std::shared_ptr<CoordinatorClient> coordinator() const override { return coordinator_; }
  void Progress(uint64_t last_decided_step) override { place_->last_progress = last_decided_step; }
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
  ~ShardProcessTest() override { process_.Stop(); }

  static JobConfig Job() {
    JobConfig job = SummingJob();
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
    place_.listener.on_state(state);
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
    InitializeRequest request;
    *request.mutable_header() = HeaderOf(view_, 1);
    SliceData& data = *request.add_slices();
    data.set_dtype(F32);
    data.set_data(BytesOf({0, 0, 0, 0}));
    process_.shard().Initialize(request, {timers_.Now()},
                                [](const absl::StatusOr<InitializeReply>& reply) {
                                  ASSERT_EQ(reply.status(), absl::OkStatus());
                                });
    Pass();
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
    Pass();
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
    EXPECT_THAT(place_.failed->reason(), HasSubstr(reason));
    EXPECT_FALSE(place_.failed->preempted());
    ASSERT_TRUE(end_.has_value());
    EXPECT_EQ(end_->code, kFailed);
    EXPECT_EQ(end_->last_line, "the cause that counts: " + place_.failed->reason());
    EXPECT_EQ(place_.leaves, 1);
  }

  FakeCoordinator& coordinator() { return *peers_.coordinator; }

  const ClusterView view_ = MakeView({});
  ManualTimers timers_;
  FakeConnector peers_;
  Log log_{LogFormat::kText, "shard"};
  Metrics metrics_;
  const std::unique_ptr<FileSystem> files_ = PosixFileSystem();
  Place place_;
  ShardProcess process_{{Job(), &log_, &metrics_, &peers_, files_.get(), std::make_shared<ManualRuntime>(&timers_)}};
  std::optional<ShardProcess::End> end_;
};

TEST_F(ShardProcessTest, ARefusedJoinIsWrongUsageAndASilentCoordinatorAFailure) {
  const auto ended = [&](const absl::Status& status) {
    end_ = process_.Start(
        [&](const Membership::Listener&) -> absl::StatusOr<std::unique_ptr<Membership>> {
          return status;
        });
    return end_.has_value() ? end_->code : kFinished;
  };
  EXPECT_EQ(ended(absl::InvalidArgumentError("another job file")), kWrongUsage);
  EXPECT_EQ(end_->last_line, "another job file");
  EXPECT_EQ(ended(absl::NotFoundError("no such job")), kWrongUsage);
  EXPECT_EQ(ended(absl::DeadlineExceededError("nobody at h:1")), kFailed);
  EXPECT_EQ(end_->last_line, "nobody at h:1");
  EXPECT_EQ(ended(absl::ResourceExhaustedError("all shards are here")), kFailed);
}

TEST_F(ShardProcessTest, ItServesAsSoonAsItHasJoinedAndSaysOnceThatItIsReady) {
  EXPECT_TRUE(absl::IsUnavailable(Pull(0)));
  Join();
  Pass(absl::Seconds(1));
  EXPECT_TRUE(absl::IsUnavailable(Pull(0))) << "there is no view yet";
  TellView(view_);
  EXPECT_TRUE(coordinator().ready.empty()) << "no value has come yet";
  Initialize();
  ASSERT_EQ(coordinator().ready.size(), 1u);
  EXPECT_EQ(coordinator().ready.front().header().member(), 101u);
  EXPECT_EQ(coordinator().ready.front().version(), 0u);
  coordinator().ready.Answer();
  EXPECT_EQ(Pull(0), absl::OkStatus());
  // A view that only lets somebody join does not make it ready again.
  ClusterView larger = MakeView({.workers = 2, .view_epoch = 2});
  larger.set_first_step(1);
  TellView(larger);
  DoStep(1);
  EXPECT_TRUE(coordinator().ready.empty());
  EXPECT_FALSE(end_.has_value());
}

TEST_F(ShardProcessTest, ThatItIsReadyIsSaidUntilItIsHeard) {
  Join();
  TellView(view_);
  Initialize();
  for (int attempt = 0; attempt < 3; ++attempt) {
    ASSERT_EQ(coordinator().ready.size(), 1u);
    EXPECT_EQ(coordinator().ready.deadline(), timers_.Now() + kLiveness);
    coordinator().ready.Answer(absl::UnavailableError("busy"));
    EXPECT_TRUE(coordinator().ready.empty());
    for (int i = 0; i < 100 && coordinator().ready.empty(); ++i) timers_.RunNext();
  }
  coordinator().ready.Answer();
  Pass(absl::Minutes(1));
  EXPECT_TRUE(coordinator().ready.empty());
  EXPECT_FALSE(end_.has_value());
}

TEST_F(ShardProcessTest, ACoordinatorThatRefusesItAsReadyEndsIt) {
  Join();
  TellView(view_);
  Initialize();
  coordinator().ready.Answer(absl::InvalidArgumentError("version 0 is not 5"));
  Pass();
  ExpectFailedWith("the coordinator refused that this shard is ready: version 0 is not 5");
}

TEST_F(ShardProcessTest, VerdictsAreReportedAndHeartbeatsHearOfTheSteps) {
  Train();
  DoStep(1);
  ASSERT_EQ(coordinator().verdicts.size(), 1u);
  EXPECT_EQ(coordinator().verdicts.front().verdicts(0).step(), 1u);
  EXPECT_EQ(coordinator().verdicts.front().header().member(), 101u);
  coordinator().verdicts.Answer();
  DoStep(2);
  EXPECT_EQ(coordinator().verdicts.front().verdicts(0).step(), 2u);
  EXPECT_EQ(place_.last_progress, 2u);
}

TEST_F(ShardProcessTest, ParkedCallsEndAtTheirDeadlineThoughNobodyElseCalls) {
  Train();
  const auto answer = Ask(1, absl::Seconds(3));
  Pass(absl::Milliseconds(2900));
  EXPECT_FALSE(answer->has_value());
  Pass(absl::Milliseconds(200));
  ASSERT_TRUE(answer->has_value());
  EXPECT_TRUE(absl::IsDeadlineExceeded(**answer)) << **answer;
}

TEST_F(ShardProcessTest, AViewThatItCannotFollowEndsIt) {
  Join();
  ClusterView view = view_;
  view.mutable_members()->DeleteSubrange(0, 1);  // this shard
  TellView(view);
  ASSERT_TRUE(place_.failed.has_value());
  ExpectFailedWith(place_.failed->reason());
  EXPECT_TRUE(coordinator().ready.empty());
}

TEST_F(ShardProcessTest, ACheckpointToStartFromThatIsNotThereEndsItWithTheFoldersName) {
  Join();
  ClusterView view = view_;
  view.set_start_from("/no/such/folder/step-00000005");
  view.set_start_version(5);
  TellView(view);
  ExpectFailedWith("/no/such/folder/step-00000005");
}

TEST_F(ShardProcessTest, WhatTheCoreCannotDecideEndsIt) {
  Train();
  Complete(1);  // nothing was pushed
  ExpectFailedWith("step 1 cannot be decided");
}

TEST_F(ShardProcessTest, ARefusedVerdictEndsIt) {
  Train();
  DoStep(1);
  coordinator().verdicts.Answer(absl::InvalidArgumentError("that was step 1 already"));
  Pass();
  ExpectFailedWith("the coordinator refused a verdict: that was step 1 already");
}

TEST_F(ShardProcessTest, ASignalIsAPreemptionWithItsName) {
  Train();
  process_.OnSignal(SIGUSR1);
  Pass();
  ASSERT_TRUE(place_.failed.has_value());
  EXPECT_EQ(place_.failed->reason(), "received SIGUSR1");
  EXPECT_TRUE(place_.failed->preempted());
  ASSERT_TRUE(end_.has_value());
  EXPECT_EQ(end_->code, kPreempted);
  EXPECT_EQ(place_.leaves, 1);
}

TEST_F(ShardProcessTest, WhenTheJobHasFinishedItLeavesAndHasNoLastLine) {
  Train();
  TellPhase(FINISHED);
  ASSERT_TRUE(end_.has_value());
  EXPECT_EQ(end_->code, kFinished);
  EXPECT_EQ(end_->last_line, "");
  EXPECT_EQ(place_.leaves, 1);
  EXPECT_FALSE(place_.failed.has_value());
}

TEST_F(ShardProcessTest, AnotherMembersFailureEndsItAndEveryCallHearsTheCause) {
  Train();
  const auto why = AskWhy();
  EXPECT_EQ(*why, "");
  TellFailure(/*member=*/1);
  ASSERT_TRUE(end_.has_value());
  EXPECT_EQ(end_->code, kFailed);
  EXPECT_EQ(end_->last_line, "what failed first");
  EXPECT_EQ(place_.leaves, 1);
  EXPECT_FALSE(place_.failed.has_value()) << "it is told, and has nothing to tell";
  EXPECT_EQ(*why, "what failed first");
  EXPECT_THAT(std::string(Pull(0).message()), HasSubstr("what failed first"));
}

TEST_F(ShardProcessTest, AnotherMembersPreemptionEndsItAsPreempted) {
  Train();
  TellFailure(/*member=*/1, /*preempted=*/true);
  ASSERT_TRUE(end_.has_value());
  EXPECT_EQ(end_->code, kPreempted);
}

TEST_F(ShardProcessTest, AStepLeaderThatHasLostTheCoordinatorStaysForThoseThatAsk) {
  Train();
  TellFailure(/*member=*/0);
  EXPECT_FALSE(end_.has_value());
  EXPECT_EQ(*AskWhy(), "what failed first");
  process_.OnSignal(SIGTERM);
  Pass(kLiveness / 2 - absl::Milliseconds(1));
  EXPECT_FALSE(end_.has_value());
  EXPECT_EQ(place_.leaves, 0);
  Pass(absl::Milliseconds(1));
  ASSERT_TRUE(end_.has_value());
  EXPECT_EQ(end_->code, kFailed);
  EXPECT_EQ(end_->last_line, "what failed first");
  EXPECT_EQ(place_.leaves, 1);
}

TEST_F(ShardProcessTest, AShardThatDoesNotLeadStaysForNobody) {
  Join(/*ordinal=*/1);
  TellView(MakeView({.tensors = {{"a", 4}, {"b", 4}}, .shards = 2}));
  TellFailure(/*member=*/0);
  ASSERT_TRUE(end_.has_value());
  EXPECT_EQ(place_.leaves, 1);
}

TEST_F(ShardProcessTest, AnOrderedCheckpointIsWrittenOnceItsStepIsDecided) {
  const std::string folder = ::testing::TempDir() + "/ordered";
  std::filesystem::create_directories(folder);
  Train();
  TellCheckpoint(1, folder);
  EXPECT_TRUE(coordinator().files.empty());
  DoStep(1);
  ASSERT_EQ(coordinator().files.size(), 1u);
  const ReportCheckpointFileRequest report = coordinator().files.front();
  EXPECT_EQ(report.header().member(), 101u);
  EXPECT_EQ(report.step(), 1u);
  EXPECT_EQ(report.error(), "");
  EXPECT_EQ(report.file().name(), "shard-0.safetensors");
  EXPECT_EQ(report.file().bytes(), std::filesystem::file_size(folder + "/shard-0.safetensors"));
  EXPECT_EQ(report.optimizer_steps().at("w"), 1u);
  coordinator().files.Answer();
  // The order stays in the states that follow.
  TellCheckpoint(1, folder);
  EXPECT_TRUE(coordinator().files.empty());
  EXPECT_FALSE(end_.has_value());
}

TEST_F(ShardProcessTest, ACheckpointThatCannotBeWrittenIsReportedAndTrainingGoesOn) {
  Train();
  DoStep(1);
  TellCheckpoint(1, "/no/such/folder");
  ASSERT_EQ(coordinator().files.size(), 1u);
  EXPECT_THAT(coordinator().files.front().error(), HasSubstr("/no/such/folder"));
  coordinator().files.Answer(absl::InvalidArgumentError("nobody asked"));
  DoStep(2);
  EXPECT_EQ(Pull(2), absl::OkStatus());
  EXPECT_FALSE(end_.has_value());
}

TEST_F(ShardProcessTest, AfterStopNothingIsSentAndNothingStaysParked) {
  Train();
  DoStep(1);
  const auto why = AskWhy();
  coordinator().verdicts.Answer(absl::UnavailableError("busy"));
  process_.Stop();
  EXPECT_NE(*why, "");
  timers_.Advance(absl::Minutes(5));
  EXPECT_TRUE(coordinator().verdicts.empty());
}

}  // namespace
}  // namespace parley::testing
