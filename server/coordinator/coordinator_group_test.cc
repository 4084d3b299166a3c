// Jobs with node groups: who is in which, and what becomes of one that loses a worker.
#include <gtest/gtest.h>

#include <set>
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

// Two groups of two.
PartMembers AllOf(const CoordinatorFixture& job) {
  return {{Id(job.workers[0]), Id(job.workers[1])}, {Id(job.workers[2]), Id(job.workers[3])}};
}

Process& StartOn(CoordinatorFixture& job, const std::string& host) {
  Process& process = job.Start(WORKER);
  process.address = host + process.address.substr(process.address.rfind(':'));
  return process;
}

TEST(CoordinatorGroupTest, TheViewHasTheWorkersOfAGroupBehindOneContributorByRank) {
  CoordinatorFixture job(NodeGroups(4, 2));
  job.Gather();
  EXPECT_EQ(PartMembersOf(job.core.view()), AllOf(job));
  EXPECT_EQ(job.core.view().members_size(), 6);
  EXPECT_EQ(job.core.view().total_steps(), 6u) << "four workers use 40 samples a step";
}

TEST(CoordinatorGroupTest, EachSliceComesFromOneRankOfEachGroup) {
  CoordinatorFixture job(NodeGroups(4, 2));
  job.Gather();
  std::set<uint32_t> ranks;
  for (const Slice& slice : job.core.view().slices()) {
    ASSERT_EQ(slice.parts_size(), 2);
    for (uint32_t group : {0, 1}) {
      const SlicePart& part = slice.parts(static_cast<int>(group));
      EXPECT_EQ(part.contributor(), group);
      EXPECT_EQ(part.part(), slice.parts(0).part()) << "the same in each group";
      EXPECT_EQ(part.begin(), slice.begin());
      EXPECT_EQ(part.end(), slice.end());
      ranks.insert(part.part());
    }
  }
  EXPECT_EQ(ranks, (std::set<uint32_t>{0, 1}));
}

TEST(CoordinatorGroupTest, AWorkerGetsAPlaceInAGroupOfItsHost) {
  CoordinatorFixture job(NodeGroups(4, 2));
  Process& a0 = StartOn(job, "10.0.0.1");
  Process& b0 = StartOn(job, "10.0.0.2");
  Process& b1 = StartOn(job, "10.0.0.2");
  Process& a1 = StartOn(job, "10.0.0.1");
  for (Process* process : {&a0, &b0, &b1, &a1}) ASSERT_TRUE(job.Join(*process).ok());
  EXPECT_EQ(a0.ordinal, 0u);
  EXPECT_EQ(b0.ordinal, 2u);
  EXPECT_EQ(b1.ordinal, 3u);
  EXPECT_EQ(a1.ordinal, 1u);
}

TEST(CoordinatorGroupTest, AWorkerOfAHostForWhichNoPlaceIsLeftIsToldWhereOneIs) {
  CoordinatorFixture job(NodeGroups(4, 2));
  for (const char* host : {"10.0.0.1", "10.0.0.2", "10.0.0.2"}) {
    ASSERT_TRUE(job.Join(StartOn(job, host)).ok());
  }
  for (const char* host : {"10.0.0.2", "10.0.0.3"}) {
    const absl::Status status = job.Join(StartOn(job, host));
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_TRUE(Says(status.ToString(), "has node groups of 2 workers, each on one host"))
        << status;
    EXPECT_TRUE(Says(status.ToString(), std::string("for a worker on ") + host)) << status;
    EXPECT_TRUE(Says(status.ToString(), "free are: worker 1 on 10.0.0.1.")) << status;
  }
  EXPECT_TRUE(job.Join(StartOn(job, "10.0.0.1")).ok());
}

TEST(CoordinatorGroupTest, AWorkerWithoutAnAddressGetsNoPlaceInAGroup) {
  CoordinatorFixture job(NodeGroups(2, 2));
  Process& nowhere = job.Start(WORKER);
  nowhere.address.clear();
  const absl::Status status = job.Join(nowhere);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Says(status.ToString(), "this one has none")) << status;
  EXPECT_TRUE(job.Status().members().empty());
}

TEST(CoordinatorGroupTest, AGroupOfWhichNobodyIsLeftMayGoToAnotherHost) {
  CoordinatorFixture job(NodeGroups(2, 2));
  job.Train();
  job.workers[0]->alive = false;
  Lose(job, *job.workers[1]);
  ASSERT_EQ(job.core.phase(), TRAINING);
  for (uint32_t ordinal : {0, 1}) {
    Process& process = StartOn(job, "10.0.0.9");
    ASSERT_TRUE(job.Join(process).ok());
    EXPECT_EQ(process.ordinal, ordinal);
    ASSERT_TRUE(job.Register(process).ok());
  }
  EXPECT_EQ(job.Status().what_is_missing(), "");
}

TEST(CoordinatorGroupTest, ALostRanksPlaceWaitsAndIsTakenByAnother) {
  for (const uint32_t lost : {2, 3}) {
    CoordinatorFixture job(NodeGroups(4, 2));
    job.Train();
    PartMembers members = AllOf(job);
    Lose(job, *job.workers[lost]);
    ASSERT_EQ(job.core.phase(), TRAINING);
    members[1][lost - 2] = 0;
    EXPECT_EQ(PartMembersOf(job.core.view()), members);
    EXPECT_EQ(job.core.view().contributors(0).attempt(), 1u);
    EXPECT_EQ(job.core.view().contributors(1).attempt(), 2u)
        << "what the others have computed with it counts no more";
    EXPECT_TRUE(Says(job.Status().what_is_missing(), "; its place waits for another worker"));
    Process& replacement = job.StartAndJoin(WORKER);
    EXPECT_EQ(replacement.ordinal, lost);
    EXPECT_EQ(job.core.view_epoch(), 2u) << "it has not registered its model";
    ASSERT_TRUE(job.Register(replacement).ok());
    members[1][lost - 2] = Id(&replacement);
    EXPECT_EQ(PartMembersOf(job.core.view()), members);
    EXPECT_EQ(job.core.view().contributors(0).attempt(), 1u);
    EXPECT_EQ(job.core.view().contributors(1).attempt(), 3u) << "it is another one now";
  }
}

// What is left of twice its liveness is for the process that takes the place, to start and to join.
TEST(CoordinatorGroupTest, AGroupThatHasLostARankIsWholeWithinTwiceItsLiveness) {
  constexpr absl::Duration kLiveness = absl::Seconds(10);
  for (int beat = 0; beat < 5; ++beat) {  // it dies at any time between two of its heartbeats
    CoordinatorFixture job(NodeGroups(4, 2));
    job.Train();
    job.Pass(beat * absl::Milliseconds(500));
    const absl::Time died = job.now;
    job.workers[3]->alive = false;
    while (job.core.view().contributors(1).attempt() == 1 && job.now < died + 2 * kLiveness) {
      job.Pass(absl::Milliseconds(500));
    }
    EXPECT_LE(job.now - died, kLiveness);
    Process& replacement = job.StartAndJoin(WORKER);
    ASSERT_TRUE(job.Register(replacement).ok());
    PartMembers members = AllOf(job);
    members[1][1] = Id(&replacement);
    EXPECT_EQ(PartMembersOf(job.core.view()), members);
    EXPECT_LE(job.now - died, 2 * kLiveness);
  }
}

TEST(CoordinatorGroupTest, WithoutRestartsALossEndsTheJob) {
  CoordinatorFixture job(NodeGroups(4, 2, /*max_restarts=*/0));
  job.Train();
  Lose(job, *job.workers[3]);
  ASSERT_EQ(job.core.phase(), FAILED);
  EXPECT_EQ(job.core.cause()->member(), Id(job.workers[3]));
}

TEST(CoordinatorGroupTest, TheJobIsDoneWhenEachRankHasFinished) {
  CoordinatorFixture job(NodeGroups(4, 2));
  job.Train();
  TrainToTheEnd(job);
  const uint64_t last = job.core.progress().step();
  for (const uint32_t worker : {0, 2, 1}) {
    ASSERT_TRUE(job.Finish(*job.workers[worker], last).ok());
    EXPECT_EQ(job.core.phase(), TRAINING);
  }
  // The last one is lost before it has finished: another one evaluates its part.
  Lose(job, *job.workers[3]);
  ASSERT_EQ(job.core.phase(), TRAINING);
  Process& replacement = job.StartAndJoin(WORKER);
  ASSERT_TRUE(job.Register(replacement).ok());
  job.LearnView();
  ASSERT_TRUE(job.Finish(replacement, last).ok());
  EXPECT_EQ(job.core.phase(), SAVING);
}

TEST(CoordinatorGroupTest, ARankThatHasFinishedDoesNotStandStill) {
  CoordinatorFixture job(NodeGroups(2, 2));
  job.Train();
  TrainToTheEnd(job);
  ASSERT_TRUE(job.Finish(*job.workers[1], job.core.progress().step()).ok());
  for (uint64_t i = 1; i <= 25; ++i) {
    ASSERT_TRUE(job.Heartbeat(*job.workers[1], 1000 + i).ok());
    job.Pass(absl::Seconds(3), /*getting_on=*/false);
  }
  ASSERT_EQ(job.core.phase(), FAILED);
  EXPECT_TRUE(Says(job.core.cause()->text(), "worker 0 at")) << job.core.cause()->text();
}

// Two workers, which are one group, and a checkpoint to go back to.
class CoordinatorGroupRecoveryTest : public CoordinatorRecoveryTest {
 protected:
  CoordinatorGroupRecoveryTest()
      : CoordinatorRecoveryTest([](CoordinatorCore::Options& options) {
          options.job.mutable_cluster()->set_group(2);
        }) {}
};

TEST_F(CoordinatorGroupRecoveryTest, WhoStandsInAGroupStaysThereWhenAllGoBack) {
  TrainWithACheckpoint();
  const PartMembers members = PartMembersOf(job_.core.view());
  ASSERT_EQ(members.size(), 1u);
  LoseShard(1);
  Replace(1);
  EXPECT_EQ(job_.core.job_epoch(), 2u);
  EXPECT_EQ(PartMembersOf(job_.core.view()), members);
  BecomeReady(2);
}

}  // namespace
}  // namespace parley
