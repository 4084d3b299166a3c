#include <gtest/gtest.h>

#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_fixture.h"

namespace parley {
namespace {

using absl::StatusCode;

TEST(CoordinatorTest, AJobGoesFromGatheringToFinished) {
  CoordinatorFixture job(2, 2);
  job.Train();
  job.now += absl::Seconds(2);
  while (job.core.progress().step() < 10) {
    job.now += absl::Milliseconds(100);
    ASSERT_TRUE(job.Report(*job.shards[0], {job.NextVerdict()}).ok());
  }
  GetStatusReply status = job.Status();
  EXPECT_EQ(status.step(), 10u);
  EXPECT_EQ(status.total_steps(), 10u);
  EXPECT_EQ(status.samples(), 200u);
  EXPECT_EQ(status.data_epoch(), 1u);
  EXPECT_EQ(status.epochs(), 2u);
  EXPECT_DOUBLE_EQ(status.loss(), 0.5);
  EXPECT_DOUBLE_EQ(status.seconds_training(), 3);
  EXPECT_EQ(job.core.progress().position().epoch(), 2u);

  for (auto* process : {job.shards[1], job.workers[0]}) {
    job.Watch(*process);
    job.Watch(*process);
    ASSERT_FALSE(process->watched.has_value());
  }
  ASSERT_TRUE(job.Finish(*job.workers[0], 10).ok());
  ASSERT_TRUE(job.Finish(*job.workers[0], 10).ok()) << "may be repeated";
  EXPECT_EQ(job.core.phase(), TRAINING);
  ASSERT_TRUE(job.Finish(*job.workers[1], 10).ok());
  EXPECT_EQ(job.core.phase(), SAVING);
  EXPECT_EQ(job.Status().phase_seconds(0).seconds(), 3.0);

  // No shard writes before its folder is there.
  EXPECT_FALSE((*job.shards[1]->watched)->has_checkpoint());
  auto work = job.core.TakeFileWork();
  ASSERT_EQ(work.size(), 1u);
  EXPECT_EQ(work[0].kind, FileWork::Kind::kCreateFolder);
  EXPECT_EQ(work[0].folder, "/job/checkpoints/step-00000010");
  EXPECT_EQ(job.ReportFile(job.FileOf(*job.shards[0], 10)).code(), StatusCode::kFailedPrecondition);
  job.Watch(*job.shards[1]);
  job.Done(work[0]);
  ASSERT_TRUE(job.shards[1]->watched.has_value());
  EXPECT_EQ((*job.shards[1]->watched)->checkpoint().step(), 10u);
  EXPECT_EQ((*job.shards[1]->watched)->checkpoint().directory(), work[0].folder);

  auto file = job.FileOf(*job.shards[0], 10);
  (*file.mutable_optimizer_steps())["fc1.weight"] = 9;
  ASSERT_TRUE(job.ReportFile(file).ok());
  ASSERT_TRUE(job.ReportFile(file).ok()) << "may be repeated";
  EXPECT_TRUE(job.core.TakeFileWork().empty());
  file = job.FileOf(*job.shards[1], 10);
  (*file.mutable_optimizer_steps())["fc1.bias"] = 10;
  ASSERT_TRUE(job.ReportFile(file).ok());
  work = job.core.TakeFileWork();
  ASSERT_EQ(work.size(), 1u);
  EXPECT_EQ(work[0].kind, FileWork::Kind::kCommit);
  const Manifest& manifest = work[0].manifest;
  EXPECT_EQ(manifest.job_name(), "digits");
  EXPECT_EQ(manifest.step(), 10u);
  EXPECT_EQ(manifest.seed(), 7u);
  EXPECT_EQ(manifest.tensors_size(), 2);
  EXPECT_EQ(manifest.data_position().epoch(), 2u);
  ASSERT_EQ(manifest.files_size(), 2);
  EXPECT_EQ(manifest.files(1).name(), "shard-1.safetensors");
  EXPECT_EQ(manifest.optimizer_steps().at("fc1.weight"), 9u);
  EXPECT_EQ(manifest.optimizer_steps().at("fc1.bias"), 10u);
  EXPECT_EQ(manifest.job().epochs(), 2u);
  EXPECT_EQ(job.core.phase(), SAVING) << "the commit is the end";

  job.Watch(*job.workers[0]);
  job.Watch(*job.workers[0]);
  job.Done(work[0]);
  EXPECT_EQ(job.core.phase(), FINISHED);
  ASSERT_TRUE(job.workers[0]->watched.has_value());
  EXPECT_EQ((*job.workers[0]->watched)->checkpoint_directory(), "/job/checkpoints/step-00000010");
  EXPECT_EQ(job.Status().checkpoint_step(), 10u);
  EXPECT_EQ(job.ReportFile(job.FileOf(*job.shards[0], 10)).code(), StatusCode::kOk) << "repeated";

  // The process stays until all have gone.
  EXPECT_FALSE(job.core.MayExit(job.now));
  for (auto& process : job.processes) {
    EXPECT_FALSE(job.core.MayExit(job.now));
    ASSERT_TRUE(job.Leave(*process).ok());
    ASSERT_TRUE(job.Leave(*process).ok()) << "may be repeated";
  }
  EXPECT_TRUE(job.core.MayExit(job.now));
  EXPECT_TRUE(job.core.Members().empty());
  EXPECT_EQ(job.core.phase(), FINISHED);
  EXPECT_FALSE(job.core.cause().has_value());
}

TEST(CoordinatorTest, VerdictsAndFinishMayComeInAnyOrder) {
  // The step leader may report before the last shard's ReportReady, and after the workers' Finish.
  CoordinatorFixture job(2, 1);
  job.Gather();
  ASSERT_TRUE(job.Ready(*job.shards[0]).ok());
  ASSERT_TRUE(job.Report(*job.shards[0], {job.NextVerdict()}).ok());
  ASSERT_TRUE(job.Finish(*job.workers[0], 2).ok());
  ASSERT_TRUE(job.Ready(*job.shards[1]).ok());
  EXPECT_EQ(job.core.phase(), TRAINING);
  ASSERT_TRUE(job.Report(*job.shards[0], {job.NextVerdict()}).ok());
  EXPECT_EQ(job.core.phase(), SAVING);
}

TEST(CoordinatorTest, WithoutACheckpointAtTheEndTheJobFinishesAtOnce) {
  auto options = CoordinatorFixture::DefaultOptions(1, 1);
  options.job.mutable_checkpoint()->set_at_end(false);
  CoordinatorFixture job(options);
  job.Train();
  ASSERT_TRUE(job.Report(*job.shards[0], {job.NextVerdict()}).ok());
  ASSERT_TRUE(job.Finish(*job.workers[0], 1).ok());
  EXPECT_EQ(job.core.phase(), FINISHED);
  EXPECT_TRUE(job.core.TakeFileWork().empty());
}

CoordinatorCore::Options StartingFromStep5() {
  auto options = CoordinatorFixture::DefaultOptions(1, 1);
  StartPoint start;
  start.folder = "/old/step-00000005";
  *start.manifest.mutable_tensors() = CoordinatorFixture::Model().tensors();
  start.manifest.set_step(5);
  SampleRange* used = start.manifest.mutable_data_position()->add_used();
  used->set_begin(0);
  used->set_end(50);
  options.start = start;
  return options;
}

TEST(CoordinatorTest, AJobStartsFromACheckpointWithItsDataPosition) {
  CoordinatorFixture job(StartingFromStep5());
  job.Gather();
  const ClusterView& view = (*job.workers[0]->watched)->view();
  EXPECT_EQ(view.start_from(), "/old/step-00000005");
  EXPECT_EQ(view.start_version(), 5u);
  EXPECT_EQ(view.first_step(), 6u);
  EXPECT_EQ(view.total_steps(), 20u);
  EXPECT_EQ(view.data_position().used(0).end(), 50u);
  EXPECT_EQ(job.Ready(*job.shards[0], 0).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(job.Ready(*job.shards[0], 5).ok());
  const Verdict verdict = job.NextVerdict();
  EXPECT_EQ(verdict.step(), 6u);
  EXPECT_EQ(verdict.shares(0).ranges(0).begin(), 50u);
  ASSERT_TRUE(job.Report(*job.shards[0], {verdict}).ok());
  EXPECT_EQ(job.Status().step(), 6u);
}

// --resume of a job that had ended: its last checkpoint is there.
TEST(CoordinatorTest, AJobThatStartsFromItsOwnLastStepIsFinishedWithoutAnotherCheckpoint) {
  auto options = StartingFromStep5();
  options.start->folder = "/job/checkpoints/step-00000020";
  options.start->manifest.set_step(20);
  options.start->manifest.clear_data_position();
  options.start->manifest.mutable_data_position()->set_epoch(2);
  CoordinatorFixture job(options);
  job.Gather();
  ASSERT_TRUE(job.Ready(*job.shards[0], 20).ok());
  ASSERT_TRUE(job.Finish(*job.workers[0], 20).ok());
  EXPECT_FALSE(job.core.has_file_work());
  EXPECT_EQ(job.core.phase(), FINISHED);
}

TEST(CoordinatorTest, ACheckpointOfAnotherModelIsRefused) {
  auto options = StartingFromStep5();
  options.start->manifest.mutable_tensors(0)->set_name("fc2.weight");
  CoordinatorFixture job(options);
  auto& worker = job.StartAndJoin(WORKER);
  const absl::Status status = job.Register(worker);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("/old/step-00000005"), absl::string_view::npos);
  EXPECT_NE(status.message().find("fc2.weight"), absl::string_view::npos);
}

TEST(CoordinatorTest, AJobStartsFromWeightsAtStep0WithAllItsData) {
  auto options = CoordinatorFixture::DefaultOptions(1, 1);
  StartPoint start;
  start.folder = "/w/model.safetensors";
  start.weights.emplace().path = start.folder;
  const RegisterModelRequest model = CoordinatorFixture::Model();
  start.weights->tensors.assign(model.tensors().begin(), model.tensors().end());
  options.start = start;
  CoordinatorFixture job(options);
  job.Gather();
  const ClusterView& view = (*job.workers[0]->watched)->view();
  EXPECT_EQ(view.start_from(), "/w/model.safetensors");
  EXPECT_EQ(view.start_version(), 0u);
  EXPECT_EQ(view.first_step(), 1u);
  EXPECT_EQ(view.data_position().epoch(), 0u);
  EXPECT_EQ(view.data_position().used_size(), 0);
  ASSERT_TRUE(job.Ready(*job.shards[0], 0).ok());
  EXPECT_EQ(job.NextVerdict().step(), 1u);

  options.start->weights->tensors[0].set_dtype(F64);
  CoordinatorFixture other(options);
  const absl::Status status = other.Register(other.StartAndJoin(WORKER));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("another shape or type (1)"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace parley
