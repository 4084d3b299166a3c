// How a job ends whose workers come and go, and how it is saved and evaluated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_fixture.h"
#include "server/coordinator/elastic_fixture.h"

namespace parley {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;
using ::testing::Not;
using Process = CoordinatorFixture::Process;

TEST(CoordinatorElasticEndTest, TheJobEndsWhenThoseThatAreLeftHaveFinished) {
  for (const LostWorker mode : {GO_ON, WAIT}) {
    for (const bool finishes_first : {false, true}) {
      CoordinatorFixture job(Elastic(3, 1, mode));
      job.Train();
      TrainToTheEnd(job);
      const uint64_t last = job.core.progress().step();
      ASSERT_TRUE(job.Finish(*job.workers[0], last).ok());
      if (finishes_first) {
        ASSERT_TRUE(job.Finish(*job.workers[1], last).ok());
      }
      // One that has finished, or one that others no longer wait for.
      Lose(job, *job.workers[1]);
      ASSERT_EQ(job.core.phase(), TRAINING);
      Places places = {{0, Id(job.workers[0])}, {2, Id(job.workers[2])}};
      // Nothing is left for a replacement, unless the job goes back.
      if (mode == WAIT) places.insert(places.begin() + 1, {1, 0});
      EXPECT_EQ(PlacesOf(job.core.view()), places);
      EXPECT_THAT(job.Status().what_is_missing(), Not(HasSubstr("worker 1")));
      ASSERT_TRUE(job.Finish(*job.workers[2], last).ok());
      EXPECT_EQ(job.core.phase(), SAVING);
      EXPECT_EQ(job.Status().phase_seconds(0).seconds(), finishes_first ? 4.5 : 3.0);
    }
  }
}

TEST(CoordinatorElasticEndTest, TheLossOfTheLastOneToFinishIsTheEnd) {
  for (const LostWorker mode : {GO_ON, WAIT}) {
    CoordinatorFixture job(Elastic(2, 1, mode));
    job.Train();
    TrainToTheEnd(job);
    ASSERT_TRUE(job.Finish(*job.workers[0], job.core.progress().step()).ok());
    Lose(job, *job.workers[1]);
    EXPECT_EQ(job.core.phase(), SAVING);
  }
}

TEST(CoordinatorElasticEndTest, APlaceThatWaitsDoesNotHinderTheEnd) {
  CoordinatorFixture job(Elastic(2, 1, WAIT));
  job.Train();
  TrainToTheEnd(job);
  Lose(job, *job.workers[1]);
  EXPECT_EQ(PlacesOf(job.core.view()), (Places{{0, Id(job.workers[0])}, {1, 0}}));
  ASSERT_TRUE(job.Finish(*job.workers[0], job.core.progress().step()).ok());
  EXPECT_EQ(job.core.phase(), SAVING);
  EXPECT_EQ(job.Status().what_is_missing().find("its place"), std::string::npos);
}

TEST(CoordinatorElasticEndTest, AnotherLastStepThanThatOfALostWorkerMayCome) {
  CoordinatorFixture job(Elastic(2, 1, GO_ON));
  job.Train();
  ASSERT_TRUE(job.Finish(*job.workers[0], 0).ok());
  EXPECT_EQ(job.Finish(*job.workers[1], 1).code(), StatusCode::kInvalidArgument);
  Lose(job, *job.workers[0]);
  job.LearnView();
  ASSERT_TRUE(job.Report(*job.shards[0], {job.NextVerdict()}).ok());
  EXPECT_TRUE(job.Finish(*job.workers[1], 1).ok());
  EXPECT_EQ(job.core.phase(), SAVING);
}

TEST(CoordinatorElasticEndTest, WhoComesAfterTheLastStepOnlySeesTheEnd) {
  auto options = Elastic(3, 1, GO_ON);
  options.job.mutable_checkpoint()->set_at_end(false);
  CoordinatorFixture job(options);
  job.Train();
  Lose(job, *job.workers[0]);
  TrainToTheEnd(job);
  const uint64_t last = job.core.progress().step();
  ASSERT_TRUE(job.Finish(*job.workers[1], last).ok());
  const uint64_t epoch = job.core.view_epoch();
  Process& late = job.StartAndJoin(WORKER);
  ASSERT_TRUE(job.Register(late).ok());
  EXPECT_EQ(job.core.view_epoch(), epoch);
  Park(job, late);
  ASSERT_TRUE(job.Finish(*job.workers[2], last).ok());
  ASSERT_EQ(job.core.phase(), FINISHED);
  ASSERT_TRUE(late.watched.has_value() && late.watched->ok());
  EXPECT_EQ((*late.watched)->phase(), FINISHED);
  for (auto& process : job.processes) {
    if (process->alive) {
      EXPECT_FALSE(job.core.MayExit(job.now));
      ASSERT_TRUE(job.Leave(*process).ok());
    }
  }
  EXPECT_TRUE(job.core.MayExit(job.now)) << "nobody waits for the lost one";
}

// It sends heartbeats, and its thread hangs: nobody has waited for it, and nobody does at the end.
TEST(CoordinatorElasticEndTest, WhoHasComeLateAndHangsIsNotWaitedForWithoutEnd) {
  for (const bool autonomous : {false, true}) {
    auto options = Elastic(3, 1, GO_ON);
    options.job.mutable_checkpoint()->set_at_end(false);
    if (autonomous) options.autonomy = absl::Seconds(90);
    CoordinatorFixture job(options);
    job.Train();
    Lose(job, *job.workers[0]);
    TrainToTheEnd(job);
    const uint64_t last = job.core.progress().step();
    const Process& late = job.StartAndJoin(WORKER);
    for (const uint32_t worker : {1, 2}) ASSERT_TRUE(job.Finish(*job.workers[worker], last).ok());
    ASSERT_EQ(job.core.phase(), FINISHED);
    for (auto& process : job.processes) {
      if (!process->alive || process.get() == &late) continue;
      ASSERT_TRUE(job.Leave(*process).ok());
      process->alive = false;
    }
    job.Pass(absl::Seconds(autonomous ? 99 : 59), /*getting_on=*/false);
    EXPECT_FALSE(job.core.MayExit(job.now));
    job.Pass(absl::Seconds(2), /*getting_on=*/false);
    EXPECT_TRUE(job.core.MayExit(job.now));
    ASSERT_EQ(job.core.StillThere(job.now).size(), 1u);
    EXPECT_EQ(job.core.StillThere(job.now)[0].find("worker 0 at " + late.address), 0u)
        << job.core.StillThere(job.now)[0];
  }
}

TEST(CoordinatorElasticEndTest, AWorkerLostWhileTheShardsSaveIsNoMatterIfEnoughAreLeft) {
  CoordinatorFixture job(Elastic(2, 1, WAIT));
  job.Train();
  TrainToTheEnd(job);
  const uint64_t last = job.core.progress().step();
  for (Process* worker : job.workers) ASSERT_TRUE(job.Finish(*worker, last).ok());
  ASSERT_EQ(job.core.phase(), SAVING);
  Lose(job, *job.workers[1]);
  ASSERT_EQ(job.core.phase(), SAVING);
  for (const FileWork& work : job.core.TakeFileWork()) job.Done(work);
  for (Process* shard : job.shards) ASSERT_TRUE(job.ReportFile(job.FileOf(*shard, last)).ok());
  for (const FileWork& work : job.core.TakeFileWork()) job.Done(work);
  EXPECT_EQ(job.core.phase(), FINISHED);
}

TEST(CoordinatorElasticEndTest, AnEvaluationWhosePartIsLostIsLeftOut) {
  CoordinatorFixture job(Elastic(2, 1, GO_ON));
  job.Train();
  const auto report = [&](const Process* worker, uint64_t version, uint64_t samples) {
    ReportEvaluationRequest request;
    *request.mutable_header() = worker->header;
    request.mutable_part()->set_version(version);
    request.mutable_part()->set_epoch(version);
    request.mutable_part()->set_samples(samples);
    Replies replies;
    return job.core.ReportEvaluation(request, job.now, replies).status();
  };
  ASSERT_TRUE(report(job.workers[0], 1, 12).ok());
  Lose(job, *job.workers[1]);
  EXPECT_EQ(report(job.workers[1], 1, 8).code(), StatusCode::kAborted);
  EXPECT_EQ(job.Status().evaluations_size(), 0);
  // Alone it has the whole test set; the job takes more steps than two workers would have taken.
  const uint64_t beyond = job.core.view().total_steps() + 5;
  EXPECT_TRUE(report(job.workers[0], beyond, 20).ok());
  EXPECT_EQ(report(job.workers[0], 1'000'000, 20).code(), StatusCode::kInvalidArgument);
  ASSERT_EQ(job.Status().evaluations_size(), 1);
  EXPECT_EQ(job.Status().evaluations(0).version(), beyond);
  EXPECT_EQ(job.core.evaluations().Incomplete(), std::vector<uint64_t>{1});
  // Shares of two divisions: more samples than there are is nobody's fault, and told to nobody.
  Process& joiner = job.StartAndJoin(WORKER);
  ASSERT_TRUE(job.Register(joiner).ok());
  job.LearnView();
  EXPECT_TRUE(report(job.workers[0], 2, 12).ok());
  EXPECT_TRUE(report(&joiner, 2, 10).ok());
  EXPECT_EQ(job.Status().evaluations_size(), 1);
  EXPECT_EQ(job.core.evaluations().Incomplete(), (std::vector<uint64_t>{1, 2}));
  TrainToTheEnd(job);
  for (Process* worker : {job.workers[0], &joiner}) {
    ASSERT_TRUE(job.Finish(*worker, job.core.progress().step()).ok());
  }
  EXPECT_EQ(job.core.phase(), SAVING);
}

TEST(CoordinatorElasticEndTest, OneThatIsCutOffFromAllStaysAsLongAsTheyGoOnWithoutIt) {
  for (const bool autonomous : {false, true}) {
    auto options = Elastic(2, 1, GO_ON);
    options.job.mutable_checkpoint()->set_at_end(false);
    if (autonomous) options.autonomy = absl::Seconds(60);
    CoordinatorFixture job(options);
    job.Train();
    TrainToTheEnd(job);
    const uint64_t last = job.core.progress().step();
    for (Process* const worker : job.workers) ASSERT_TRUE(job.Finish(*worker, last).ok());
    ASSERT_EQ(job.core.phase(), FINISHED);
    ASSERT_TRUE(job.Leave(*job.workers[0]).ok());
    for (auto& process : job.processes) process->alive = false;
    job.Pass(absl::Seconds(12));
    EXPECT_EQ(job.core.MayExit(job.now), !autonomous);
    job.Pass(absl::Seconds(50));
    EXPECT_EQ(job.core.MayExit(job.now), !autonomous);
    job.Pass(absl::Seconds(10));
    EXPECT_TRUE(job.core.MayExit(job.now));
  }
}

}  // namespace
}  // namespace parley
