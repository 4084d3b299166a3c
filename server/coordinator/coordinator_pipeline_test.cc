// Jobs with pipelines: who gathers, and who ends the job.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_fixture.h"
#include "server/coordinator/elastic_fixture.h"
#include "server/coordinator/pipeline_fixture.h"

namespace parley {
namespace {

using absl::StatusCode;
using Process = CoordinatorFixture::Process;

bool Says(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

TEST(CoordinatorPipelineTest, TheViewHasEachPipelinesStagesBehindTheirWorker) {
  CoordinatorFixture job(Pipelines(2, 2));
  job.Gather();
  EXPECT_EQ(PartMembersOf(job.core.view()),
            (PartMembers{{Id(job.workers[0]), Id(job.stages[0]), Id(job.stages[1])},
                         {Id(job.workers[1]), Id(job.stages[2]), Id(job.stages[3])}}));
  EXPECT_EQ(job.core.view().members_size(), 8);
  EXPECT_EQ(job.core.view().total_steps(), 10u) << "two workers use 20 samples a step";
}

TEST(CoordinatorPipelineTest, EachSliceComesFromTheStagesThatHaveItsTensor) {
  CoordinatorFixture job(Pipelines(2, 2));
  job.Gather();
  using Part = std::tuple<uint32_t, uint32_t, uint64_t, uint64_t>;
  ASSERT_EQ(job.core.view().slices_size(), 3);
  for (const Slice& slice : job.core.view().slices()) {
    std::vector<Part> parts;
    for (const SlicePart& part : slice.parts()) {
      parts.emplace_back(part.contributor(), part.part(), part.begin(), part.end());
    }
    const uint64_t begin = slice.begin();
    const uint64_t end = slice.end();
    // fc1.weight is tied: both stages have it.
    const auto expected = slice.tensor() == 0
                              ? std::vector<Part>{{0, 1, begin, end},
                                                  {0, 2, begin, end},
                                                  {1, 1, begin, end},
                                                  {1, 2, begin, end}}
                              : std::vector<Part>{{0, 2, begin, end}, {1, 2, begin, end}};
    EXPECT_EQ(parts, expected) << "slice " << slice.id();
  }
}

TEST(CoordinatorPipelineTest, ABufferOfTwoStagesComesFromTheFirst) {
  CoordinatorFixture job(Pipelines(1, 2));
  auto model = CoordinatorFixture::Model(2);
  model.mutable_tensors(0)->set_buffer(true);
  job.Gather(model);
  for (const Slice& slice : job.core.view().slices()) {
    ASSERT_EQ(slice.parts_size(), 1);
    EXPECT_EQ(slice.parts(0).part(), slice.tensor() == 0 ? 1u : 2u);
  }
}

TEST(CoordinatorPipelineTest, TheJobGathersUntilEveryStageHasRegistered) {
  CoordinatorFixture job(Pipelines(1, 2));
  Process& worker = job.StartAndJoin(WORKER);
  for (int i = 0; i < 2; ++i) job.StartAndJoin(SHARD);
  ASSERT_TRUE(job.Register(worker).ok());
  Process& first = job.StartAndJoin(STAGE);
  EXPECT_EQ(first.ordinal, 0u);
  ASSERT_TRUE(job.Register(first).ok());
  EXPECT_EQ(job.Status().expected_members(), 5u);
  EXPECT_EQ(job.Status().what_is_missing(), "stage 1 has not joined");
  Process& second = job.StartAndJoin(STAGE);
  EXPECT_EQ(second.ordinal, 1u);
  EXPECT_EQ(job.Status().what_is_missing(),
            "stage 1 at 127.0.0.1:4104 (pid 104) has not registered its model");
  EXPECT_EQ(job.Join(job.Start(STAGE)).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(job.core.phase(), GATHERING);
  ASSERT_TRUE(job.Register(second).ok());
  EXPECT_EQ(job.core.phase(), PREPARING);
}

TEST(CoordinatorPipelineTest, AStageThatIsLostWhileTheyGatherEndsTheJob) {
  CoordinatorFixture job(Pipelines(1, 2, /*max_restarts=*/0));
  job.StartAndJoin(SHARD);
  Process& stage = job.StartAndJoin(STAGE);
  Lose(job, stage);
  ASSERT_EQ(job.core.phase(), FAILED);
  EXPECT_TRUE(Says(job.core.cause()->text(), "stage 0 at 127.0.0.1:4101 (pid 101) has not been"))
      << job.core.cause()->text();
}

TEST(CoordinatorPipelineTest, OrLeavesItsPlaceToAnotherWhereTheJobMaySurviveThat) {
  CoordinatorFixture job(Pipelines(1, 2, /*max_restarts=*/1));
  for (int i = 0; i < 2; ++i) job.StartAndJoin(SHARD);
  Process& stage = job.StartAndJoin(STAGE);
  ASSERT_TRUE(job.Register(stage).ok());
  Lose(job, stage);
  ASSERT_EQ(job.core.phase(), GATHERING);
  for (const Role role : {STAGE, STAGE, WORKER}) {
    EXPECT_EQ(job.core.phase(), GATHERING);
    ASSERT_TRUE(job.Register(job.StartAndJoin(role)).ok());
  }
  EXPECT_EQ(job.core.phase(), PREPARING);
}

TEST(CoordinatorPipelineTest, WhoCutsTheModelOtherwiseIsTold) {
  CoordinatorFixture job(Pipelines(1, 2));
  Process& worker = job.StartAndJoin(WORKER);
  Process& stage = job.StartAndJoin(STAGE);
  ASSERT_TRUE(job.Register(worker).ok());
  auto other = CoordinatorFixture::Model(2);
  other.mutable_tensors(0)->mutable_stages()->RemoveLast();
  const absl::Status status = job.Register(stage, other);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Says(status.ToString(),
                   "stage 0 at 127.0.0.1:4101 (pid 101) does not train what "
                   "worker 0 at 127.0.0.1:4100 (pid 100) trains: tensor 0, "
                   "'fc1.weight', is on stages [0] here and [0, 1] there"))
      << status;
  EXPECT_TRUE(job.Register(stage).ok());
}

TEST(CoordinatorPipelineTest, ACutThatIsNoneIsRefused) {
  for (const auto& [stages, list, text] :
       std::vector<std::tuple<uint32_t, std::vector<uint32_t>, std::string>>{
           {2, {}, "is on no stage, of 2 in each pipeline"},
           {2, {2}, "is on stage 2, each pipeline has 2"},
           {2, {1, 0}, "has stages [1, 0], which are not in ascending order"},
           {2, {1, 1}, "has stages [1, 1], which are not in ascending order"},
           {0, {0}, "is on stage 0, each pipeline has 0"}}) {
    CoordinatorFixture job(Pipelines(1, stages));
    Process& worker = job.StartAndJoin(WORKER);
    auto model = CoordinatorFixture::Model(stages);
    model.mutable_tensors(1)->mutable_stages()->Assign(list.begin(), list.end());
    const absl::Status status = job.Register(worker, model);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_TRUE(Says(status.ToString(), absl::StrCat("tensor 'fc1.bias' ", text))) << status;
    EXPECT_TRUE(job.Register(worker).ok());
  }
}

TEST(CoordinatorPipelineTest, ACheckpointOfAnotherCutIsAStart) {
  for (const uint32_t former : {0, 1, 3}) {
    auto options = Pipelines(1, 2);
    options.start.emplace().folder = "/c";
    *options.start->manifest.mutable_tensors() = CoordinatorFixture::Model(former).tensors();
    CoordinatorFixture job(options);
    job.Gather();
    EXPECT_EQ(job.core.view().start_from(), "/c");
  }
}

TEST(CoordinatorPipelineTest, ACheckpointSaysNothingOfTheCut) {
  CoordinatorFixture job(Pipelines(1, 2));
  job.Train();
  TrainToTheEnd(job);
  ASSERT_TRUE(job.Finish(*job.workers[0], job.core.progress().step()).ok());
  const auto folder = job.core.TakeFileWork();
  ASSERT_EQ(folder.size(), 1u);
  job.Done(folder[0]);
  for (Process* shard : job.shards) {
    ASSERT_TRUE(job.ReportFile(job.FileOf(*shard, job.core.progress().step())).ok());
  }
  const auto commit = job.core.TakeFileWork();
  ASSERT_EQ(commit.size(), 1u);
  ASSERT_EQ(commit[0].manifest.tensors_size(), 2);
  for (const TensorSpec& tensor : commit[0].manifest.tensors())
    EXPECT_TRUE(tensor.stages().empty());
}

TEST(CoordinatorPipelineTest, TheWorkersFinishAndTheStagesSeeTheEnd) {
  CoordinatorFixture job(Pipelines(2, 2));
  job.Train();
  TrainToTheEnd(job);
  const uint64_t last = job.core.progress().step();
  EXPECT_EQ(job.Finish(*job.stages[0], last).code(), StatusCode::kInvalidArgument);
  ReportEvaluationRequest evaluation;
  *evaluation.mutable_header() = job.stages[0]->header;
  Replies replies;
  EXPECT_EQ(job.core.ReportEvaluation(evaluation, job.now, replies).status().code(),
            StatusCode::kInvalidArgument);
  ASSERT_TRUE(job.Finish(*job.workers[0], last).ok());
  EXPECT_EQ(job.core.phase(), TRAINING);
  const auto waits = job.core.Waits(job.now);
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_EQ(waits[0].what(), "worker 1 at 127.0.0.1:4107 (pid 107) has not finished");
  for (Process* stage : job.stages) Park(job, *stage);
  ASSERT_TRUE(job.Finish(*job.workers[1], last).ok());
  EXPECT_EQ(job.core.phase(), SAVING);
  for (Process* stage : job.stages) {
    ASSERT_TRUE(stage->watched.has_value() && stage->watched->ok());
    EXPECT_EQ((*stage->watched)->phase(), SAVING);
  }
}

TEST(CoordinatorPipelineTest, WhoHasLeftNothingToDoDoesNotStall) {
  CoordinatorFixture job(Pipelines(2, 1));
  job.Train();
  TrainToTheEnd(job);
  ASSERT_TRUE(job.Finish(*job.workers[0], job.core.progress().step()).ok());
  // Worker 1 and its stage evaluate for longer than a stall would take.
  for (uint64_t i = 1; i <= 40; ++i) {
    for (Process* process : {job.workers[1], job.stages[1]}) {
      ASSERT_TRUE(job.Heartbeat(*process, 1000 + i).ok());
    }
    job.Pass(absl::Seconds(3), /*getting_on=*/false);
  }
  ASSERT_EQ(job.core.phase(), TRAINING) << job.core.cause()->text();
  job.Pass(absl::Seconds(61), /*getting_on=*/false);
  ASSERT_EQ(job.core.phase(), FAILED);
  EXPECT_TRUE(Says(job.core.cause()->text(), " 1 at ")) << job.core.cause()->text();
}

TEST(CoordinatorPipelineTest, AStageThatLeavesBeforeTheEndEndsTheJob) {
  CoordinatorFixture job(Pipelines(1, 2));
  job.Train();
  ASSERT_TRUE(job.Leave(*job.stages[1]).ok());
  ASSERT_EQ(job.core.phase(), FAILED);
  EXPECT_TRUE(Says(job.core.cause()->text(),
                   "stage 1 at 127.0.0.1:4103 (pid 103): left before the end of the job"))
      << job.core.cause()->text();
}

TEST(CoordinatorPipelineTest, AStageThatStandsStillIsNamed) {
  CoordinatorFixture job(Pipelines(1, 2));
  job.Train();
  for (uint64_t i = 1; i <= 25; ++i) {
    for (Process* process : {job.workers[0], job.stages[0]}) {
      ASSERT_TRUE(job.Heartbeat(*process, 1000 + i).ok());
    }
    job.Pass(absl::Seconds(3), /*getting_on=*/false);
  }
  ASSERT_EQ(job.core.phase(), FAILED);
  EXPECT_TRUE(Says(job.core.cause()->text(), "stage 1 at 127.0.0.1:4103 (pid 103) is alive but"))
      << job.core.cause()->text();
}

}  // namespace
}  // namespace parley
