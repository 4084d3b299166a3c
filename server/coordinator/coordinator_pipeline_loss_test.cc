// A worker or stage of a pipeline is lost: its place waits for another one.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_fixture.h"
#include "server/coordinator/elastic_fixture.h"
#include "server/coordinator/pipeline_fixture.h"
#include "server/coordinator/recovery_fixture.h"

namespace parley {
namespace {

using absl::StatusCode;
using Process = CoordinatorFixture::Process;

bool Says(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

// Two pipelines of two stages: who stands where.
PartMembers AllOf(const CoordinatorFixture& job) {
  return {{Id(job.workers[0]), Id(job.stages[0]), Id(job.stages[1])},
          {Id(job.workers[1]), Id(job.stages[2]), Id(job.stages[3])}};
}

// The next coordinator, which knows what this one has recorded.
CoordinatorState Recorded(const CoordinatorFixture& job) { return job.core.DurableState(); }
void TakeOver(CoordinatorFixture& next, const CoordinatorFixture& former) {
  next.now = former.now;
  const absl::Status restored = next.core.Restore(Recorded(former));
  ASSERT_TRUE(restored.ok()) << restored;
  next.core.Open(2, "127.0.0.1:4000", next.now);
}

TEST(CoordinatorPipelineLossTest, ALostStagesPlaceWaitsAndIsTakenByAnother) {
  for (const bool training : {false, true}) {
    CoordinatorFixture job(Pipelines(2, 2));
    training ? job.Train() : job.Gather();
    PartMembers members = AllOf(job);
    for (auto& process : job.processes) Park(job, *process);
    Lose(job, *job.stages[3]);
    ASSERT_EQ(job.core.phase(), training ? TRAINING : PREPARING);
    EXPECT_EQ(job.core.view_epoch(), 2u);
    members[1][2] = 0;
    EXPECT_EQ(PartMembersOf(job.core.view()), members);
    EXPECT_EQ(job.core.view().contributors(0).attempt(), 1u);
    EXPECT_EQ(job.core.view().contributors(1).attempt(), 2u)
        << "what the others have computed with it counts no more";
    const std::string missing = job.Status().what_is_missing();
    EXPECT_TRUE(Says(missing, "stage 3 at 127.0.0.1:4105 (pid 105) has not been heard of since"))
        << missing;
    EXPECT_TRUE(Says(missing, "; its place waits for another stage")) << missing;
    EXPECT_EQ(job.Status().expected_members(), 8u);
    EXPECT_EQ(job.Status().members_size(), 7);
    ASSERT_TRUE(job.workers[1]->watched.has_value() && job.workers[1]->watched->ok());
    EXPECT_EQ((*job.workers[1]->watched)->view().view_epoch(), 2u);
    EXPECT_EQ(job.stages[3]->watched->status().code(), StatusCode::kAborted);
    const auto waits = job.core.Waits(job.now);
    ASSERT_FALSE(waits.empty());
    EXPECT_EQ(waits[0].on(0).role(), STAGE);
    EXPECT_EQ(waits[0].on(0).ordinal(), 3u);

    job.Pass(absl::Seconds(40), /*getting_on=*/false);
    Process& replacement = job.StartAndJoin(STAGE);
    EXPECT_EQ(replacement.ordinal, 3u);
    EXPECT_EQ(job.core.view_epoch(), 2u) << "it has not registered its model";
    ASSERT_TRUE(job.Register(replacement).ok());
    EXPECT_EQ(job.core.view_epoch(), 3u);
    members[1][2] = Id(&replacement);
    EXPECT_EQ(PartMembersOf(job.core.view()), members);
    EXPECT_EQ(job.core.view().contributors(0).attempt(), 1u);
    EXPECT_EQ(job.core.view().contributors(1).attempt(), 3u) << "it is another one now";
    EXPECT_EQ(job.core.view().members_size(), 8);
    EXPECT_FALSE(Says(job.Status().what_is_missing(), "waits for another"));
    if (!training) continue;
    // The others have stood still while they waited; that is not held against them.
    job.Pass(absl::Seconds(50), /*getting_on=*/false);
    EXPECT_EQ(job.core.phase(), TRAINING);
  }
}

TEST(CoordinatorPipelineLossTest, ALostWorkersStagesStayAndItsPlaceIsTakenByAnother) {
  CoordinatorFixture job(Pipelines(2, 2));
  job.Train();
  PartMembers members = AllOf(job);
  Lose(job, *job.workers[0]);
  ASSERT_EQ(job.core.phase(), TRAINING);
  members[0][0] = 0;
  EXPECT_EQ(PartMembersOf(job.core.view()), members);
  EXPECT_TRUE(Says(job.Status().what_is_missing(), "; its place waits for another worker"));
  Process& replacement = job.StartAndJoin(WORKER);
  ASSERT_TRUE(job.Register(replacement).ok());
  members[0][0] = Id(&replacement);
  EXPECT_EQ(PartMembersOf(job.core.view()), members);
  EXPECT_EQ(job.core.view().contributors(0).attempt(), 3u);
  Lose(job, replacement);
  EXPECT_TRUE(Says(job.Status().what_is_missing(), "worker 0 at 127.0.0.1:4108 (pid 108) has not"))
      << job.Status().what_is_missing();
}

TEST(CoordinatorPipelineLossTest, ANewProcessAtAStagesAddressNeedNotWaitForTheLease) {
  CoordinatorFixture job(Pipelines(2, 2));
  job.Train();
  PartMembers members = AllOf(job);
  Process& next = job.Start(STAGE);
  next.address = job.stages[1]->address;
  ASSERT_TRUE(job.Join(next).ok());
  EXPECT_EQ(next.ordinal, 1u);
  ASSERT_EQ(job.core.phase(), TRAINING);
  members[0][2] = 0;
  EXPECT_EQ(PartMembersOf(job.core.view()), members);
  EXPECT_EQ(job.Status().expected_members(), 8u) << "the place has a holder";
  ASSERT_TRUE(job.Register(next).ok());
  members[0][2] = Id(&next);
  EXPECT_EQ(PartMembersOf(job.core.view()), members);
}

TEST(CoordinatorPipelineLossTest, SeveralPlacesAreTakenInWhateverOrderTheyCome) {
  CoordinatorFixture job(Pipelines(2, 2));
  job.Train();
  PartMembers members = AllOf(job);
  for (Process* lost : {job.workers[1], job.stages[0]}) lost->alive = false;
  Lose(job, *job.stages[3]);
  ASSERT_EQ(job.core.phase(), TRAINING);
  members[0][1] = members[1][0] = members[1][2] = 0;
  EXPECT_EQ(PartMembersOf(job.core.view()), members);
  Process& last = job.StartAndJoin(STAGE);
  Process& first = job.StartAndJoin(STAGE);
  EXPECT_EQ(last.ordinal, 0u);
  EXPECT_EQ(first.ordinal, 3u);
  ASSERT_TRUE(job.Register(first).ok());
  members[1][2] = Id(&first);
  EXPECT_EQ(PartMembersOf(job.core.view()), members);
  // It is lost again before it has registered.
  Lose(job, last);
  EXPECT_EQ(PartMembersOf(job.core.view()), members);
  for (const Role role : {STAGE, WORKER}) ASSERT_TRUE(job.Register(job.StartAndJoin(role)).ok());
  EXPECT_EQ(job.Status().what_is_missing(), "");
  for (const auto& parts : PartMembersOf(job.core.view())) {
    for (const uint64_t member : parts) EXPECT_NE(member, 0u);
  }
}

TEST(CoordinatorPipelineLossTest, WithoutRestartsALossEndsTheJob) {
  for (const Role role : {STAGE, WORKER}) {
    CoordinatorFixture job(Pipelines(2, 2, /*max_restarts=*/0));
    job.Train();
    Process& lost = role == STAGE ? *job.stages[2] : *job.workers[1];
    Lose(job, lost);
    ASSERT_EQ(job.core.phase(), FAILED);
    EXPECT_EQ(job.core.cause()->member(), Id(&lost));
    EXPECT_EQ(job.core.cause()->text().find(role == STAGE
                                                ? "stage 2 at 127.0.0.1:4104 (pid 104) has not been"
                                                : "worker 1 at 127.0.0.1:4107 (pid 107) has not"),
              0u)
        << job.core.cause()->text();
  }
}

TEST(CoordinatorPipelineLossTest, AReplacementThatDoesNotComeEndsTheJobWithTheLostStageAsItsCause) {
  CoordinatorFixture job(Pipelines(1, 2));
  job.Train();
  job.stages[1]->alive = false;
  job.Pass(absl::Seconds(69), /*getting_on=*/false);
  ASSERT_EQ(job.core.phase(), TRAINING) << job.core.cause()->text();
  job.Pass(absl::Seconds(2), /*getting_on=*/false);
  ASSERT_EQ(job.core.phase(), FAILED);
  EXPECT_EQ(job.core.cause()->member(), Id(job.stages[1]));
  EXPECT_EQ(job.core.cause()->text().find("stage 1 at 127.0.0.1:4103 (pid 103) has not been heard"),
            0u)
      << job.core.cause()->text();
}

TEST(CoordinatorPipelineLossTest, AStageThatHasNoPlaceInTheViewYetMayFailByItself) {
  CoordinatorFixture job(Pipelines(1, 2));
  job.Train();
  Lose(job, *job.stages[1]);
  Process& replacement = job.StartAndJoin(STAGE);
  ASSERT_TRUE(job.Fail(replacement, "cannot read the job").ok());
  EXPECT_EQ(job.core.phase(), TRAINING);
  Process& next = job.StartAndJoin(STAGE);
  EXPECT_EQ(next.ordinal, 1u);
  ASSERT_TRUE(job.Register(next).ok());
  EXPECT_EQ(PartMembersOf(job.core.view())[0][2], Id(&next));
}

TEST(CoordinatorPipelineLossTest, TheNextCoordinatorWaitsForTheSamePlaces) {
  CoordinatorFixture job(Pipelines(2, 2));
  job.Train();
  PartMembers members = AllOf(job);
  job.workers[1]->alive = false;
  Lose(job, *job.stages[1]);  // worker and stage of the same ordinal
  Process& early = job.StartAndJoin(STAGE);
  members[0][2] = members[1][0] = 0;

  CoordinatorFixture next(Pipelines(2, 2), CoordinatorFixture::NotOpen());
  TakeOver(next, job);
  EXPECT_EQ(PartMembersOf(next.core.view()), members);
  const std::string missing = next.Status().what_is_missing();
  EXPECT_TRUE(Says(missing, "stage 1 at 127.0.0.1:4103 (pid 103) has not been")) << missing;
  EXPECT_TRUE(Says(missing, "worker 1 at 127.0.0.1:4107 (pid 107) has not been")) << missing;
  EXPECT_EQ(next.Status().expected_members(), 8u);
  ASSERT_TRUE(next.Register(early).ok());
  Process& worker = job.Start(WORKER);
  ASSERT_TRUE(next.Join(worker).ok());
  ASSERT_TRUE(next.Register(worker).ok());
  members[0][2] = Id(&early);
  members[1][0] = Id(&worker);
  EXPECT_EQ(PartMembersOf(next.core.view()), members);
  EXPECT_EQ(next.Status().what_is_missing(), "");
  EXPECT_EQ(next.core.view_epoch(), 5u);
}

TEST(CoordinatorPipelineLossTest, AViewWithoutItsPartsIsNoRecord) {
  CoordinatorFixture job(Pipelines(1, 2));
  job.Train();
  CoordinatorState state = Recorded(job);
  state.mutable_view()->mutable_contributors(0)->mutable_part_members()->RemoveLast();
  CoordinatorFixture next(Pipelines(1, 2), CoordinatorFixture::NotOpen());
  EXPECT_EQ(next.core.Restore(state).code(), StatusCode::kDataLoss);
}

TEST(CoordinatorPipelineLossTest, APipelineIsWaitedForUntilItsWorkerHasFinished) {
  CoordinatorFixture job(Pipelines(2, 2));
  job.Train();
  TrainToTheEnd(job);
  const uint64_t last = job.core.progress().step();
  ASSERT_TRUE(job.Finish(*job.workers[0], last).ok());
  // The finished one's stage is missed by nobody, the other one's by its worker, which evaluates.
  job.stages[1]->alive = false;
  Lose(job, *job.stages[2]);
  ASSERT_EQ(job.core.phase(), TRAINING);
  const std::string missing = job.Status().what_is_missing();
  EXPECT_FALSE(Says(missing, "stage 1")) << missing;
  EXPECT_TRUE(Says(missing, "stage 2 at")) << missing;
  EXPECT_EQ(job.Status().expected_members(), 8u) << "so many are wanted all the same";
  Process& useless = job.StartAndJoin(STAGE);
  EXPECT_EQ(useless.ordinal, 1u);
  ASSERT_TRUE(job.Register(useless).ok());
  EXPECT_EQ(PartMembersOf(job.core.view())[0][2], 0u);
  Process& replacement = job.StartAndJoin(STAGE);
  ASSERT_TRUE(job.Register(replacement).ok());
  EXPECT_EQ(PartMembersOf(job.core.view())[1][1], Id(&replacement));
  job.LearnView();
  ASSERT_TRUE(job.Finish(*job.workers[1], last).ok());
  EXPECT_EQ(job.core.phase(), SAVING);
  Lose(job, *job.stages[0]);
  EXPECT_EQ(job.core.phase(), SAVING);
  EXPECT_FALSE(Says(job.Status().what_is_missing(), "stage")) << job.Status().what_is_missing();
}

TEST(CoordinatorPipelineLossTest, AWorkerThatIsLostAfterItHasFinishedIsWaitedForWhileOthersTrain) {
  CoordinatorFixture job(Pipelines(2, 1));
  job.Train();
  TrainToTheEnd(job);
  const uint64_t last = job.core.progress().step();
  ASSERT_TRUE(job.Finish(*job.workers[0], last).ok());
  Lose(job, *job.workers[0]);
  ASSERT_TRUE(job.Finish(*job.workers[1], last).ok());
  EXPECT_EQ(job.core.phase(), TRAINING);
  Process& replacement = job.StartAndJoin(WORKER);
  ASSERT_TRUE(job.Register(replacement).ok());
  job.LearnView();
  ASSERT_TRUE(job.Finish(replacement, last).ok());
  EXPECT_EQ(job.core.phase(), SAVING);
}

// Two pipelines of one stage, and a checkpoint to go back to.
class CoordinatorPipelineRecoveryTest : public CoordinatorRecoveryTest {
 protected:
  CoordinatorPipelineRecoveryTest()
      : CoordinatorRecoveryTest([](CoordinatorCore::Options& options) {
          options.job.mutable_cluster()->set_stages(1);
        }) {}
};

TEST_F(CoordinatorPipelineRecoveryTest, WhoStandsBehindAContributorStaysThereWhenAllGoBack) {
  TrainWithACheckpoint();
  const PartMembers members = PartMembersOf(job_.core.view());
  const auto slices = job_.core.view().slices();
  LoseShard(1);
  Replace(1);
  EXPECT_EQ(job_.core.phase(), PREPARING);
  EXPECT_EQ(job_.core.job_epoch(), 2u);
  EXPECT_EQ(PartMembersOf(job_.core.view()), members);
  EXPECT_EQ(job_.core.view().members_size(), 6);
  for (int i = 0; i < slices.size(); ++i) {
    EXPECT_EQ(job_.core.view().slices(i).SerializeAsString(), slices[i].SerializeAsString());
  }
  BecomeReady(2);
}

TEST_F(CoordinatorPipelineRecoveryTest, AStageThatIsLostMeanwhileIsStillWaitedForThen) {
  TrainWithACheckpoint();
  job_.stages[1]->alive = false;
  LoseShard(1);
  Replace(1);
  ASSERT_EQ(job_.core.phase(), PREPARING);
  EXPECT_EQ(PartMembersOf(job_.core.view())[1][1], 0u);
  EXPECT_TRUE(Says(job_.Status().what_is_missing(), "its place waits for another stage"));
  Process& replacement = job_.StartAndJoin(STAGE);
  ASSERT_TRUE(job_.Register(replacement).ok());
  EXPECT_EQ(PartMembersOf(job_.core.view())[1][1], Id(&replacement));
  BecomeReady(2);
}

TEST_F(CoordinatorPipelineRecoveryTest, PlacesThatNobodyMissedAtTheEndAreMissedAgain) {
  TrainWithACheckpoint();
  for (int step = 5; step <= 10; ++step) Decide();
  for (auto* worker : job_.workers) ASSERT_TRUE(job_.Finish(*worker, 10).ok());
  ASSERT_EQ(job_.core.phase(), SAVING);
  // One stage has another process in its place, which came when there was nothing to do any more.
  job_.stages[0]->alive = false;
  Lose(job_, *job_.stages[1]);
  ASSERT_EQ(job_.core.phase(), SAVING);
  Process& early = job_.StartAndJoin(STAGE);
  ASSERT_TRUE(job_.Register(early).ok());
  EXPECT_EQ(PartMembersOf(job_.core.view())[0][1], 0u);
  LoseShard(1);
  Replace(1);
  ASSERT_EQ(job_.core.phase(), PREPARING);
  EXPECT_EQ(PartMembersOf(job_.core.view())[0][1], Id(&early));
  EXPECT_EQ(PartMembersOf(job_.core.view())[1][1], 0u);
  EXPECT_TRUE(Says(job_.Status().what_is_missing(), "stage 1 at"))
      << job_.Status().what_is_missing();
  Process& late = job_.StartAndJoin(STAGE);
  ASSERT_TRUE(job_.Register(late).ok());
  EXPECT_EQ(PartMembersOf(job_.core.view())[1][1], Id(&late));
  BecomeReady(2);
}

}  // namespace
}  // namespace parley
