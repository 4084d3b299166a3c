#include "server/parameter_shard/shard_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_replace.h"
#include "common/checkpoint/manifest.h"
#include "common/memory_file_system.h"
#include "server/parameter_shard/shard_process_fixture.h"

namespace parley::testing {
namespace {

using ::testing::HasSubstr;

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

TEST_F(ShardProcessTest, IsReadyWithTheStartThoughFastWorkersHaveDecidedSteps) {
  Join();
  TellView(view_);
  SetValues();
  DoStep(1);
  ASSERT_EQ(coordinator().ready.size(), 1u);
  EXPECT_EQ(coordinator().ready.front().version(), view_.start_version());
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
  ExpectFailedWith(
      "the coordinator refused to hear whether this shard is ready: version 0 is not 5");
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

TEST_F(ShardProcessTest, WhoDoesNotAnswerForLongIsToldOf) {
  Train();
  DoStep(1);
  Pass(absl::Seconds(14));
  EXPECT_EQ(place_.awaits, "");
  Pass(absl::Seconds(2));
  EXPECT_EQ(place_.awaits, "awaits the coordinator to answer to a report of verdicts");
  coordinator().verdicts.Answer();
  Pass(absl::Seconds(1));
  EXPECT_EQ(place_.awaits, "");
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
  view.mutable_slices(0)->set_shard(9);
  TellView(view);
  ASSERT_TRUE(place_.failed.has_value());
  ExpectFailedWith(place_.failed->reason());
  EXPECT_TRUE(coordinator().ready.empty());
}

// A checkpoint of no files, whose manifest was changed.
void WriteDamaged(FileSystem& files, const std::string& folder) {
  ASSERT_EQ(files.CreateDirectories(folder), absl::OkStatus());
  Manifest manifest;
  manifest.set_job_name("before");
  ASSERT_EQ(CommitCheckpoint(files, folder, manifest), absl::OkStatus());
  const auto text = ReadWholeFile(files, folder + "/manifest.json");
  ASSERT_EQ(text.status(), absl::OkStatus());
  ASSERT_EQ(WriteFileAtomically(files, folder + "/manifest.json",
                                absl::StrReplaceAll(*text, {{"before", "behind"}})),
            absl::OkStatus());
}

TEST_F(ShardProcessTest, ADamagedCheckpointIsToldOfAndAnotherOneWaitedFor) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/damaged-start/step-00000002");
  WriteDamaged(*files_, folder);
  Join();
  view_.set_start_from(folder);
  TellView(view_);
  EXPECT_FALSE(end_.has_value());
  ASSERT_EQ(coordinator().ready.size(), 1u);
  EXPECT_THAT(coordinator().ready.front().damage(), HasSubstr("manifest.json"));
  coordinator().ready.Answer();
  TellView(view_);
  EXPECT_TRUE(coordinator().ready.empty()) << "it has said so";
  view_.set_job_epoch(view_.job_epoch() + 1);
  view_.set_view_epoch(view_.view_epoch() + 1);
  view_.clear_start_from();
  TellView(view_);
  Initialize();
  ASSERT_EQ(coordinator().ready.size(), 1u);
  EXPECT_TRUE(coordinator().ready.front().damage().empty());
  EXPECT_EQ(coordinator().ready.front().header().job_epoch(), view_.job_epoch());
}

TEST_F(ShardProcessTest, SoIsOneWhoseManifestCannotBeReadOrIsGone) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/cut-start/step-00000002");
  const std::string manifest = folder + "/manifest.json";
  WriteDamaged(*files_, folder);
  const auto text = ReadWholeFile(*files_, manifest);
  ASSERT_EQ(text.status(), absl::OkStatus());
  ASSERT_EQ(WriteFileAtomically(*files_, manifest, text->substr(0, text->size() / 2)),
            absl::OkStatus());
  Join();
  view_.set_start_from(folder);
  TellView(view_);
  EXPECT_FALSE(end_.has_value());
  ASSERT_EQ(coordinator().ready.size(), 1u);
  EXPECT_THAT(coordinator().ready.front().damage(), HasSubstr("manifest.json: is damaged"));
  coordinator().ready.Answer();
  ASSERT_EQ(files_->Remove(manifest), absl::OkStatus());
  view_.set_job_epoch(view_.job_epoch() + 1);
  view_.set_view_epoch(view_.view_epoch() + 1);
  TellView(view_);
  EXPECT_FALSE(end_.has_value());
  ASSERT_EQ(coordinator().ready.size(), 1u);
  EXPECT_THAT(coordinator().ready.front().damage(), HasSubstr("this file is missing"));
}

class ShardWithBadDiskTest : public ShardProcessTest {
 protected:
  ShardWithBadDiskTest() : ShardProcessTest("25s", std::make_unique<MemoryFileSystem>()) {
    WriteDamaged(*files_, "run/step-00000002");
    view_.set_start_from("run/step-00000002");
  }
  void FailNext(uint64_t operations) {
    auto& memory = static_cast<MemoryFileSystem&>(*files_);
    for (uint64_t i = 1; i <= operations; ++i) {
      memory.SetFault(memory.operations() + i, MemoryFileSystem::Fault::kFails);
    }
  }
};

TEST_F(ShardWithBadDiskTest, ACheckpointThatCannotBeReadIsReadALittleLater) {
  Join();
  FailNext(3);
  TellView(view_);
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(end_.has_value());
    EXPECT_TRUE(coordinator().ready.empty());
    Pass(absl::Milliseconds(1250));  // an eighth of liveness
  }
  ASSERT_EQ(coordinator().ready.size(), 1u);
  EXPECT_THAT(coordinator().ready.front().damage(), HasSubstr("manifest.json"));
}

TEST_F(ShardWithBadDiskTest, AndNotForEver) {
  Join();
  FailNext(1000);
  TellView(view_);
  for (int i = 0; i < 200 && !end_.has_value(); ++i) Pass(absl::Milliseconds(1250));
  ExpectFailedWith("the disk has failed");
}

TEST_F(ShardProcessTest, OneThatHasComeForALostShardWaitsForTheViewThatNamesIt) {
  Join();
  ClusterView before = view_;
  before.mutable_members(0)->set_id(77);  // the lost one
  TellView(before);
  EXPECT_FALSE(end_.has_value());
  EXPECT_TRUE(absl::IsUnavailable(Pull(0))) << "it has taken nothing of that view";
  ClusterView now = view_;
  now.set_job_epoch(view_.job_epoch() + 1);
  now.set_view_epoch(view_.view_epoch() + 1);
  view_ = now;
  TellView(now);
  Initialize();
  ASSERT_EQ(coordinator().ready.size(), 1u);
  EXPECT_EQ(coordinator().ready.front().header().job_epoch(), now.job_epoch());
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
  // Lent, and written again before the step is decided.
  std::atomic<uint64_t> count = 1;
  PushRequest push;
  *push.mutable_header() = HeaderOf(view_, 1);
  push.set_step(1);
  TensorSlice slice;
  slice.dtype = F32;
  const auto gradient = std::make_shared<std::vector<float>>(4, 1.0F);
  slice.bytes = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(gradient->data()), 16);
  slice.owner = gradient;
  slice.loan = Loan{&count, 1};
  process_.shard().Push(push, {&slice, 1}, {timers_.Now()},
                        [](const absl::StatusOr<PushReply>& reply) { ASSERT_TRUE(reply.ok()); });
  count = 2;
  Complete(1);
  ExpectFailedWith("has written again what it had lent");
}

TEST_F(ShardProcessTest, ARefusedVerdictEndsIt) {
  Train();
  DoStep(1);
  coordinator().verdicts.Answer(absl::InvalidArgumentError("that was step 1 already"));
  Pass();
  ExpectFailedWith("the coordinator refused a verdict: that was step 1 already");
}

TEST_F(ShardProcessTest, CtrlCIsAPreemptionAtOnce) {
  Train();
  process_.OnSignal(SIGINT);
  Pass();
  ASSERT_TRUE(place_.failed.has_value());
  EXPECT_EQ(place_.failed->reason(), "preempted by SIGINT");
  EXPECT_TRUE(place_.failed->preempted());
  EXPECT_TRUE(place_.preempted.empty());
  ASSERT_TRUE(end_.has_value());
  EXPECT_EQ(end_->code, kPreempted);
  EXPECT_EQ(place_.leaves, 1);
}

TEST_F(ShardProcessTest, AfterSigtermItTellsTheCoordinatorAndServesAndWritesUntilTheEnd) {
  const std::string folder = ::testing::TempDir() + "/preempted";
  std::filesystem::create_directories(folder);
  Train();
  process_.OnSignal(SIGTERM);
  Pass();
  EXPECT_THAT(place_.preempted, ::testing::ElementsAre("preempted by SIGTERM, 25s"));
  EXPECT_FALSE(place_.failed.has_value());
  DoStep(1);
  EXPECT_EQ(Pull(1), absl::OkStatus());
  TellCheckpoint(1, folder);
  ASSERT_EQ(coordinator().files.size(), 1u);
  EXPECT_EQ(coordinator().files.front().error(), "");
  EXPECT_FALSE(end_.has_value());
  TellFailure(/*member=*/1, /*preempted=*/true);
  ASSERT_TRUE(end_.has_value());
  EXPECT_EQ(end_->code, kPreempted);
  EXPECT_EQ(end_->last_line, "what failed first");
  EXPECT_EQ(place_.leaves, 1);
}

TEST_F(ShardProcessTest, AfterSigusr1ThereIsMoreTimeAndAfterSigtermThereIsLessAgain) {
  Train();
  process_.OnSignal(SIGUSR1);
  Pass();
  process_.OnSignal(SIGTERM);
  process_.OnSignal(SIGUSR1);
  Pass();
  EXPECT_THAT(place_.preempted,
              ::testing::ElementsAre("preempted by SIGUSR1, 1m25s", "preempted by SIGTERM, 25s"));
}

class ShardWithoutGraceTest : public ShardProcessTest {
 protected:
  ShardWithoutGraceTest() : ShardProcessTest("0s") {}
};

TEST_F(ShardWithoutGraceTest, AnySignalIsAPreemptionAtOnce) {
  Train();
  process_.OnSignal(SIGUSR1);
  Pass();
  ASSERT_TRUE(place_.failed.has_value());
  EXPECT_EQ(place_.failed->reason(), "preempted by SIGUSR1");
  ASSERT_TRUE(end_.has_value());
  EXPECT_EQ(end_->code, kPreempted);
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
  EXPECT_GT(place_.disk_bytes, 0u) << "how far it was could be seen";
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

// Where another shard is lost the folder goes, and this one may be about to write into it.
TEST_F(ShardProcessTest, OnlyACheckpointThatIsStillOrderedCountsAsFailed) {
  Train();
  DoStep(1);
  WatchReply ordered;
  ordered.set_phase(TRAINING);
  ordered.mutable_checkpoint()->set_step(1);
  ordered.mutable_checkpoint()->set_directory("/no/such/folder");
  ordered.mutable_checkpoint()->set_job_epoch(view_.job_epoch());
  WatchReply given_up;
  given_up.set_phase(TRAINING);
  for (const WatchReply& state : {ordered, given_up}) {
    place_.listener.on_state(std::make_shared<const WatchReply>(state));
    EXPECT_FALSE(process_.HandleMail().has_value());
  }
  EXPECT_TRUE(coordinator().files.empty()) << "its disk has not come to it";
  Pass();
  ASSERT_EQ(coordinator().files.size(), 1u);
  EXPECT_THAT(metrics_.Text(), HasSubstr("parley_checkpoint_failures_total 0"));
  coordinator().files.Answer();

  ordered.mutable_checkpoint()->set_directory("/nor/this/folder");
  Tell(ordered);
  ASSERT_EQ(coordinator().files.size(), 1u);
  EXPECT_THAT(metrics_.Text(), HasSubstr("parley_checkpoint_failures_total 1"));
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
