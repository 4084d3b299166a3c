#include "server/coordinator/checkpoint_plan.h"

#include <gtest/gtest.h>

namespace parley {
namespace {

using Stage = CheckpointPlan::Stage;

Member Shard(uint32_t ordinal) {
  Member member;
  member.set_role(SHARD);
  member.set_ordinal(ordinal);
  return member;
}

ReportCheckpointFileRequest File(uint32_t shard, uint64_t step) {
  ReportCheckpointFileRequest report;
  report.set_step(step);
  report.mutable_file()->set_name("shard-" + std::to_string(shard) + ".safetensors");
  report.mutable_file()->set_shard(shard);
  report.mutable_file()->set_crc32("00000001");
  return report;
}

class CheckpointPlanTest : public testing::Test {
 protected:
  FileWork Begin() {
    Manifest manifest;
    manifest.set_step(12);
    return plan_.Begin("/c", 2, manifest, now_);
  }

  absl::Time now_ = absl::UnixEpoch();
  CheckpointPlan plan_;
};

TEST_F(CheckpointPlanTest, FolderThenFilesThenManifest) {
  EXPECT_EQ(plan_.stage(), Stage::kNone);
  EXPECT_FALSE(plan_.order().has_value());
  EXPECT_EQ(Begin().folder, "/c/step-00000012");
  EXPECT_EQ(plan_.stage(), Stage::kFolder);
  EXPECT_FALSE(plan_.order().has_value());
  EXPECT_EQ(plan_.Add(Shard(0), File(0, 12)).code(), absl::StatusCode::kFailedPrecondition);
  plan_.FolderIsThere();
  ASSERT_TRUE(plan_.order().has_value());
  // In any order; the manifest has them by shard.
  ASSERT_TRUE(plan_.Add(Shard(1), File(1, 12)).ok());
  EXPECT_FALSE(plan_.CommitIfComplete().has_value());
  ASSERT_TRUE(plan_.Add(Shard(0), File(0, 12)).ok());
  const auto work = plan_.CommitIfComplete();
  ASSERT_TRUE(work.has_value());
  EXPECT_EQ(work->kind, FileWork::Kind::kCommit);
  EXPECT_EQ(work->manifest.files(0).shard(), 0u);
  EXPECT_EQ(work->manifest.files(1).shard(), 1u);
  EXPECT_FALSE(plan_.CommitIfComplete().has_value()) << "once";
  EXPECT_EQ(plan_.whole_folder(), "");
  plan_.Committed(now_ + absl::Seconds(3));
  EXPECT_FALSE(plan_.busy());
  EXPECT_EQ(plan_.ended(), 12u);
  EXPECT_EQ(plan_.written(), 1u);
  EXPECT_EQ(plan_.whole_folder(), "/c/step-00000012");
  EXPECT_EQ(plan_.whole_step(), 12u);
  EXPECT_EQ(plan_.duration(), absl::Seconds(3));
}

TEST_F(CheckpointPlanTest, AReportThatDoesNotFitIsRefused) {
  Begin();
  plan_.FolderIsThere();
  EXPECT_FALSE(plan_.Add(Shard(0), File(0, 11)).ok());
  EXPECT_FALSE(plan_.Add(Shard(0), File(1, 12)).ok());
  auto escape = File(0, 12);
  escape.mutable_file()->set_name("../shard-0.safetensors");
  EXPECT_FALSE(plan_.Add(Shard(0), escape).ok());
  ASSERT_TRUE(plan_.Add(Shard(0), File(0, 12)).ok());
  auto other = File(0, 12);
  other.mutable_file()->set_crc32("00000002");
  EXPECT_FALSE(plan_.Add(Shard(0), other).ok());
  EXPECT_FALSE(plan_.CommitIfComplete().has_value());
}

// What it knows survives its process, at every stage.
CheckpointPlan Restarted(const CheckpointPlan& plan, std::optional<FileWork>* work = nullptr) {
  CoordinatorState state;
  plan.Write(state);
  CheckpointPlan next;
  auto due = next.Read(state.checkpoint(), 2);
  if (work != nullptr) *work = std::move(due);
  return next;
}

// What an earlier coordinator began has hung in this one's disk, and come through after all.
TEST_F(CheckpointPlanTest, OneThatIsCommittedLateAfterATakeoverCountsFromTheTakeover) {
  Begin();
  plan_.FolderIsThere();
  for (const uint32_t shard : {0, 1}) ASSERT_TRUE(plan_.Add(Shard(shard), File(shard, 12)).ok());
  ASSERT_TRUE(plan_.CommitIfComplete().has_value());
  std::optional<FileWork> commit;
  plan_ = Restarted(plan_, &commit);
  ASSERT_TRUE(commit.has_value());
  plan_.Resume(now_ + absl::Seconds(100));
  (void)plan_.GiveUp("the disk does not answer");
  plan_.CommittedLate(*commit, now_ + absl::Seconds(170));
  EXPECT_EQ(plan_.whole_step(), 12u);
  EXPECT_EQ(plan_.duration(), absl::Seconds(70));
}

TEST_F(CheckpointPlanTest, OneAfterTheOther) {
  std::optional<FileWork> work;
  for (const uint64_t step : {12, 20}) {
    Manifest manifest;
    manifest.set_step(step);
    plan_.Begin("/c", 2, manifest, now_);
    plan_ = Restarted(plan_, &work);
    ASSERT_TRUE(work.has_value());
    EXPECT_EQ(work->kind, FileWork::Kind::kCreateFolder);
    plan_.FolderIsThere();
    ASSERT_TRUE(plan_.Add(Shard(0), File(0, step)).ok());
    plan_ = Restarted(plan_, &work);
    EXPECT_FALSE(work.has_value());
    EXPECT_EQ(plan_.order()->step(), step);
    EXPECT_TRUE(plan_.reported(0));
    EXPECT_FALSE(plan_.reported(1)) << "of the one before";
    ASSERT_TRUE(plan_.Add(Shard(1), File(1, step)).ok());
    ASSERT_TRUE(plan_.CommitIfComplete().has_value());
    plan_ = Restarted(plan_, &work);
    ASSERT_TRUE(work.has_value());
    EXPECT_EQ(work->kind, FileWork::Kind::kCommit);
    EXPECT_EQ(work->manifest.files_size(), 2);
    plan_.Committed(now_);
    plan_ = Restarted(plan_, &work);
    EXPECT_FALSE(work.has_value());
    EXPECT_FALSE(plan_.busy());
    EXPECT_EQ(plan_.whole_step(), step);
    EXPECT_EQ(plan_.ended(), step);
  }
}

TEST_F(CheckpointPlanTest, TheOneBeforeStaysWhenOneIsGivenUp) {
  EXPECT_FALSE(plan_.GiveUp("nothing to give up").has_value());
  Begin();
  plan_.FolderIsThere();
  for (const uint32_t shard : {0, 1}) ASSERT_TRUE(plan_.Add(Shard(shard), File(shard, 12)).ok());
  ASSERT_TRUE(plan_.CommitIfComplete().has_value());
  plan_.Committed(now_);

  Manifest manifest;
  manifest.set_step(20);
  plan_.Begin("/c", 2, manifest, now_);
  plan_.FolderIsThere();
  ASSERT_TRUE(plan_.Add(Shard(0), File(0, 20)).ok());
  const auto work = plan_.GiveUp("no space left");
  ASSERT_TRUE(work.has_value());
  EXPECT_EQ(work->kind, FileWork::Kind::kAbandon);
  EXPECT_EQ(work->folder, "/c/step-00000020");
  EXPECT_EQ(work->files, (std::vector<std::string>{"shard-0.safetensors", "shard-1.safetensors"}));
  EXPECT_EQ(work->manifest.step(), 0u) << "nothing of it can be whole";
  for (const CheckpointPlan& plan : {plan_, Restarted(plan_)}) {
    EXPECT_FALSE(plan.busy());
    EXPECT_FALSE(plan.order().has_value());
    EXPECT_EQ(plan.ended(), 20u);
    EXPECT_EQ(plan.whole_step(), 12u);
    EXPECT_EQ(plan.whole_folder(), "/c/step-00000012");
    EXPECT_EQ(plan.failed(), 1u);
    EXPECT_EQ(plan.interrupted(), 0u);
    EXPECT_EQ(plan.error(), "no space left");
  }
  EXPECT_EQ(plan_.Add(Shard(1), File(1, 20)).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(CheckpointPlanTest, OneThatIsGivenUpForALostShardIsCountedApart) {
  Begin();
  ASSERT_TRUE(plan_.GiveUp("it is lost", CheckpointPlan::GivenUp::kForALostShard).has_value());
  for (const CheckpointPlan& plan : {plan_, Restarted(plan_)}) {
    EXPECT_EQ(plan.failed(), 1u);
    EXPECT_EQ(plan.interrupted(), 1u);
    EXPECT_EQ(plan.error(), "it is lost");
  }
  CoordinatorState state;
  plan_.Write(state);
  state.mutable_checkpoint()->set_interrupted(7);
  CheckpointPlan strange;
  (void)strange.Read(state.checkpoint(), 2);
  EXPECT_EQ(strange.interrupted(), 1u) << "no more than all";
}

}  // namespace
}  // namespace parley
