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
  EXPECT_EQ(plan_.stage(), Stage::kDone);
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

}  // namespace
}  // namespace parley
