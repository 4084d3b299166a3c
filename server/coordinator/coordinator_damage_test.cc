// The checkpoint that the shards are to load is damaged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "server/coordinator/recovery_fixture.h"

namespace parley {
namespace {

using ::testing::HasSubstr;

constexpr char kDamage[] = "step-00000005/shard-0.safetensors: is damaged: bytes 8 to 16";

class CoordinatorDamageTest : public CoordinatorRecoveryTest {
 protected:
  explicit CoordinatorDamageTest(bool turns = true)
      : CoordinatorRecoveryTest([turns](CoordinatorCore::Options& options) {
          options.job.mutable_checkpoint()->set_use_previous_if_damaged(turns);
        }) {}

  // Checkpoints of the versions 2 and 5, and all are to go back to that one.
  void GoBackToTheSecondOne() {
    TrainWithACheckpoint();
    mark_.Clear();
    Decide(/*mark=*/true);
    Write(5);
    Decide();
    LoseShard(1);
    Replace(1);
    ASSERT_EQ(job_.core.view().start_version(), 5u);
    job_.LearnView();
  }

  absl::Status ReportDamage(uint32_t shard) { return job_.Ready(*job_.shards[shard], 5, kDamage); }

  // As Perform (checkpoint_files.h) finds it.
  void Find(FileWork work, uint64_t step) {
    EXPECT_EQ(work.kind, FileWork::Kind::kFindPrevious);
    EXPECT_EQ(work.folder, "/job/checkpoints/step-00000005");
    work.folder = "/job/checkpoints/step-0000000" + std::to_string(step);
    work.manifest.set_step(step);
    *work.manifest.mutable_tensors() = job_.core.view().tensors();
    work.manifest.mutable_data_position()->add_used()->set_end(20 * step);
    job_.Done(work);
  }
};

class CoordinatorDamageOfferTest : public CoordinatorDamageTest {
 protected:
  CoordinatorDamageOfferTest() : CoordinatorDamageTest(/*turns=*/false) {}
};

TEST_F(CoordinatorDamageTest, AllGoOnFromTheOneBeforeIfTheJobSaysSo) {
  GoBackToTheSecondOne();
  ASSERT_TRUE(job_.Ready(*job_.shards[1], 5).ok());
  ASSERT_TRUE(ReportDamage(0).ok());
  EXPECT_EQ(job_.core.phase(), PREPARING);
  Find(TheWork(), 2);
  EXPECT_EQ(job_.core.phase(), PREPARING);
  EXPECT_EQ(job_.core.job_epoch(), 3u);
  EXPECT_EQ(job_.core.view().start_from(), "/job/checkpoints/step-00000002");
  EXPECT_EQ(job_.core.view().start_version(), 2u);
  EXPECT_EQ(job_.core.view().data_position().used(0).end(), 40u);
  EXPECT_EQ(job_.Status().steps_lost(), 1u + 3u);
  EXPECT_EQ(job_.Status().shards_lost(), 1u) << "it is no lost shard";
  EXPECT_EQ(ReportDamage(1).code(), absl::StatusCode::kAborted) << "of the time before";
  BecomeReady(2);
  for (int step = 3; step <= 4; ++step) Decide();
  // Where the damaged one lies there is room for it.
  Decide(/*mark=*/true);
  const FileWork folder = TheWork();
  EXPECT_EQ(folder.folder, "/job/checkpoints/step-00000005");
  EXPECT_TRUE(folder.damaged);
  job_.Done(folder);
  for (auto* shard : job_.shards) ASSERT_TRUE(job_.ReportFile(FileOf(*shard, 5)).ok());
  job_.Done(TheWork());
  EXPECT_EQ(job_.core.checkpoint().whole_folder(), "/job/checkpoints/step-00000005");
  EXPECT_TRUE(job_.core.damaged_checkpoints().empty()) << "the new one is whole";
}

// Version 3 is damaged too, which nobody knew before.
TEST_F(CoordinatorDamageTest, ThereIsRoomForEachThatIsPassedOver) {
  GoBackToTheSecondOne();
  ASSERT_TRUE(ReportDamage(0).ok());
  FileWork work = TheWork();
  work.passed_over = {"/job/checkpoints/step-00000003", "/job/checkpoints/step-00000005"};
  Find(work, 2);
  BecomeReady(2);
  Decide(/*mark=*/true);
  const FileWork folder = TheWork();
  EXPECT_EQ(folder.folder, "/job/checkpoints/step-00000003");
  EXPECT_TRUE(folder.damaged);
  EXPECT_EQ(job_.core.damaged_checkpoints().size(), 2u);
}

class CoordinatorDamagedStartTest : public CoordinatorRecoveryTest {
 protected:
  CoordinatorDamagedStartTest()
      : CoordinatorRecoveryTest([](CoordinatorCore::Options& options) {
          options.job.mutable_checkpoint()->set_use_previous_if_damaged(true);
          StartPoint start;
          start.folder = "/job/checkpoints/step-00000002";
          start.manifest.set_step(2);
          start.manifest.mutable_data_position()->add_used()->set_end(40);
          *start.manifest.mutable_tensors() = CoordinatorFixture::Model().tensors();
          options.start = std::move(start);
        }) {}
};

TEST_F(CoordinatorDamagedStartTest, TheOneInItsPlaceIsWhatTheJobHasStartedFrom) {
  job_.Gather();
  ASSERT_TRUE(job_.Ready(*job_.shards[0], 2, kDamage).ok());
  FileWork work = TheWork();
  work.folder = "/job/checkpoints/step-00000001";
  work.manifest.set_step(1);
  *work.manifest.mutable_tensors() = job_.core.view().tensors();
  job_.Done(work);
  ASSERT_EQ(job_.core.view().start_version(), 1u);
  EXPECT_EQ(job_.core.DurableState().started_from(), "/job/checkpoints/step-00000001");
}

// Having gone back to one of its own, which is damaged, as is the one that it has started from.
TEST_F(CoordinatorDamagedStartTest, WhatIsPassedOverIsNotWhatTheJobHasStartedFrom) {
  job_.Train(2);
  Decide();
  Decide();
  Decide(/*mark=*/true);
  Write(5);
  LoseShard(1);
  Replace(1);
  ASSERT_EQ(job_.core.view().start_version(), 5u);
  ASSERT_EQ(job_.core.DurableState().started_from(), "/job/checkpoints/step-00000002");
  job_.LearnView();
  ASSERT_TRUE(job_.Ready(*job_.shards[0], 5, kDamage).ok());
  FileWork work = TheWork();
  work.folder = "/job/checkpoints/step-00000001";
  work.manifest.set_step(1);
  *work.manifest.mutable_tensors() = job_.core.view().tensors();
  work.passed_over = {"/job/checkpoints/step-00000002", "/job/checkpoints/step-00000005"};
  job_.Done(work);
  ASSERT_EQ(job_.core.view().start_version(), 1u);
  EXPECT_EQ(job_.core.DurableState().started_from(), "/job/checkpoints/step-00000001");
}

TEST_F(CoordinatorDamageTest, ManyShardsFindTheSameDamage) {
  GoBackToTheSecondOne();
  ASSERT_TRUE(ReportDamage(0).ok());
  ASSERT_TRUE(ReportDamage(1).ok());
  Find(TheWork(), 2);
  EXPECT_EQ(job_.core.job_epoch(), 3u);
  EXPECT_FALSE(job_.core.has_file_work());
}

TEST_F(CoordinatorDamageTest, WithoutAnEarlierOneTheJobEndsWithTheDamage) {
  GoBackToTheSecondOne();
  ASSERT_TRUE(ReportDamage(0).ok());
  job_.Done(TheWork(), absl::NotFoundError("none"));
  EXPECT_EQ(job_.core.phase(), FAILED);
  EXPECT_THAT(job_.core.cause()->text(), HasSubstr(kDamage));
  EXPECT_THAT(job_.core.cause()->text(), HasSubstr("no whole one of an earlier step"));
  EXPECT_THAT(job_.core.cause()->text(), HasSubstr("shard 0 at"));
}

TEST_F(CoordinatorDamageTest, OneOfAnotherModelIsNoneToGoOnFrom) {
  GoBackToTheSecondOne();
  ASSERT_TRUE(ReportDamage(0).ok());
  FileWork work = TheWork();
  work.folder = "/job/checkpoints/step-00000002";
  work.manifest.set_step(2);
  job_.Done(work);
  EXPECT_EQ(job_.core.phase(), FAILED);
  EXPECT_THAT(job_.core.cause()->text(), HasSubstr(kDamage));
}

TEST_F(CoordinatorDamageTest, ALostShardIsWaitedForFirst) {
  GoBackToTheSecondOne();
  ASSERT_TRUE(ReportDamage(0).ok());
  const FileWork work = TheWork();
  LoseShard(1);
  Find(work, 2);
  EXPECT_EQ(job_.core.job_epoch(), 2u);
  Replace(1);
  EXPECT_EQ(job_.core.job_epoch(), 3u);
  EXPECT_EQ(job_.core.view().start_version(), 2u);
}

TEST_F(CoordinatorDamageTest, ANewCoordinatorLooksAgain) {
  GoBackToTheSecondOne();
  ASSERT_TRUE(ReportDamage(0).ok());
  CoordinatorCore next(job_.options_);
  ASSERT_TRUE(next.Restore(job_.core.DurableState()).ok());
  next.Open(2, "127.0.0.1:4001", job_.now);
  const auto works = next.TakeFileWork();
  ASSERT_EQ(works.size(), 1u);
  EXPECT_EQ(works[0].kind, FileWork::Kind::kFindPrevious);
  EXPECT_EQ(works[0].folder, "/job/checkpoints/step-00000005");
}

TEST_F(CoordinatorDamageTest, ANewCoordinatorKnowsWhichAreDamaged) {
  GoBackToTheSecondOne();
  ASSERT_TRUE(ReportDamage(0).ok());
  Find(TheWork(), 2);
  CoordinatorCore next(job_.options_);
  ASSERT_TRUE(next.Restore(job_.core.DurableState()).ok());
  EXPECT_EQ(next.damaged_checkpoints().count("/job/checkpoints/step-00000005"), 1u);
  EXPECT_TRUE(next.TakeFileWork().empty());
}

TEST_F(CoordinatorDamageOfferTest, TheJobEndsAndNamesTheOneBefore) {
  GoBackToTheSecondOne();
  ASSERT_TRUE(ReportDamage(0).ok());
  Find(TheWork(), 2);
  EXPECT_EQ(job_.core.phase(), FAILED);
  EXPECT_THAT(job_.core.cause()->text(), HasSubstr(kDamage));
  EXPECT_THAT(job_.core.cause()->text(), HasSubstr("/job/checkpoints/step-00000002, is of step 2"));
  EXPECT_THAT(job_.core.cause()->text(), HasSubstr("use_previous_if_damaged"));
}

}  // namespace
}  // namespace parley
