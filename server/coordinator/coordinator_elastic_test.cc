// Workers are lost, come and come back while the job trains: each event of docs/membership.md.
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
using Process = CoordinatorFixture::Process;

TEST(CoordinatorElasticTest, ALostWorkersOrdinalLeavesTheViewAndTheOthersGoOn) {
  for (const bool training : {false, true}) {
    CoordinatorFixture job(Elastic(3, 1, GO_ON));
    training ? job.Train() : job.Gather();
    if (training) {
      ASSERT_TRUE(job.Report(*job.shards[0], {job.NextVerdict()}).ok());
    }
    const uint64_t members = job.core.membership_revision();
    for (auto& process : job.processes) Park(job, *process);
    Lose(job, *job.workers[1]);
    ASSERT_EQ(job.core.phase(), training ? TRAINING : PREPARING);
    EXPECT_EQ(job.core.view_epoch(), 2u);
    EXPECT_EQ(PlacesOf(job.core.view()),
              (Places{{0, Id(job.workers[0])}, {2, Id(job.workers[2])}}));
    EXPECT_EQ(job.core.view().members_size(), 4);
    EXPECT_EQ(job.core.view().first_step(), training ? 2u : 1u);
    EXPECT_GT(job.core.membership_revision(), members);

    // All others are told by the call that they have parked; the lost one is fenced for good.
    for (Process* process : {job.shards[0], job.shards[1], job.workers[0], job.workers[2]}) {
      ASSERT_TRUE(process->watched.has_value() && process->watched->ok());
      EXPECT_EQ((*process->watched)->view().view_epoch(), 2u);
    }
    Process& lost = *job.workers[1];
    ASSERT_TRUE(lost.watched.has_value());
    EXPECT_EQ(lost.watched->status().code(), StatusCode::kAborted);
    EXPECT_EQ(job.Heartbeat(lost).code(), StatusCode::kAborted);
    EXPECT_EQ(job.Join(lost).code(), StatusCode::kAborted);
    EXPECT_EQ(job.Fail(lost, "too late").code(), StatusCode::kAborted);
    EXPECT_EQ(job.Finish(lost, 1).code(), StatusCode::kAborted);
    job.Watch(lost);
    EXPECT_EQ(lost.watched->status().code(), StatusCode::kAborted);

    job.LearnView();
    if (!training) {
      for (Process* shard : job.shards) ASSERT_TRUE(job.Ready(*shard).ok());
    }
    ASSERT_TRUE(job.Report(*job.shards[0], {job.NextVerdict()}).ok());
    EXPECT_EQ(job.core.phase(), TRAINING);
  }
}

TEST(CoordinatorElasticTest, WithWaitThePlaceStaysEmptyUntilAReplacementTakesIt) {
  CoordinatorFixture job(Elastic(3, 1, WAIT));
  job.Train();
  Lose(job, *job.workers[1]);
  ASSERT_EQ(job.core.phase(), TRAINING);
  EXPECT_EQ(job.core.view_epoch(), 2u);
  EXPECT_EQ(PlacesOf(job.core.view()),
            (Places{{0, Id(job.workers[0])}, {1, 0}, {2, Id(job.workers[2])}}));
  EXPECT_NE(job.Status().what_is_missing().find("worker 1 at 127.0.0.1:4103 (pid 103) has not been "
                                                "heard of since"),
            std::string::npos)
      << job.Status().what_is_missing();
  EXPECT_EQ(job.Status().expected_members(), 5u);
  EXPECT_EQ(job.Status().members_size(), 4);

  job.Pass(absl::Seconds(40), /*getting_on=*/false);
  Process& replacement = job.StartAndJoin(WORKER);
  EXPECT_EQ(replacement.ordinal, 1u);
  EXPECT_EQ(job.core.view_epoch(), 2u) << "it has not registered its model";
  Park(job, *job.shards[0]);
  ASSERT_TRUE(job.Register(replacement).ok());
  EXPECT_EQ(job.core.view_epoch(), 3u);
  EXPECT_EQ(PlacesOf(job.core.view()),
            (Places{{0, Id(job.workers[0])}, {1, Id(&replacement)}, {2, Id(job.workers[2])}}));
  ASSERT_TRUE(job.shards[0]->watched.has_value());
  EXPECT_EQ((*job.shards[0]->watched)->view().view_epoch(), 3u);
  EXPECT_EQ(job.Status().what_is_missing(), "");

  // The others have stood still while they waited; that is not held against them.
  job.Pass(absl::Seconds(50), /*getting_on=*/false);
  EXPECT_EQ(job.core.phase(), TRAINING);
  ASSERT_TRUE(job.Register(replacement).ok()) << "may be repeated";
  EXPECT_EQ(job.core.view_epoch(), 3u);
}

TEST(CoordinatorElasticTest, AReplacementThatDoesNotComeEndsTheJobWithTheLostWorkerAsItsCause) {
  CoordinatorFixture job(Elastic(2, 1, WAIT));
  job.Train();
  job.Pass(absl::Seconds(3));
  for (auto& process : job.processes) ASSERT_TRUE(job.Heartbeat(*process, 1000).ok());
  const absl::Time heard = job.now;
  job.workers[1]->alive = false;
  // The other one stands still from then on, since the step waits.
  job.Pass(absl::Seconds(69), /*getting_on=*/false);
  ASSERT_EQ(job.core.phase(), TRAINING) << job.core.cause()->text();
  job.Pass(absl::Seconds(2), /*getting_on=*/false);
  ASSERT_EQ(job.core.phase(), FAILED);
  const std::string& text = job.core.cause()->text();
  EXPECT_EQ(job.core.cause()->member(), Id(job.workers[1]));
  EXPECT_EQ(text.find("worker 1 at 127.0.0.1:4103 (pid 103) has not been heard of since " +
                      FormatUtc(heard) + " (70.0 s); last decided step 0"),
            0u)
      << text;
}

TEST(CoordinatorElasticTest, FewerThanMinWorkersEndTheJobWithTheLastLossAsItsCause) {
  for (const LostWorker mode : {GO_ON, WAIT}) {
    CoordinatorFixture job(Elastic(3, 2, mode));
    job.Train();
    Lose(job, *job.workers[2]);
    ASSERT_EQ(job.core.phase(), TRAINING);
    Lose(job, *job.workers[0]);
    ASSERT_EQ(job.core.phase(), FAILED);
    EXPECT_EQ(job.core.cause()->member(), Id(job.workers[0]));
    EXPECT_NE(job.core.cause()->text().find("has not been heard of since"), std::string::npos);
  }
}

TEST(CoordinatorElasticTest, TwoLeasesMayEndAtTheSameTime) {
  for (const uint32_t min_workers : {1, 2}) {
    CoordinatorFixture job(Elastic(3, min_workers, GO_ON));
    job.Train();
    job.workers[0]->alive = false;
    Lose(job, *job.workers[2]);
    ASSERT_EQ(job.core.phase(), min_workers == 1 ? TRAINING : FAILED);
    if (min_workers == 1) {
      EXPECT_EQ(PlacesOf(job.core.view()), (Places{{1, Id(job.workers[1])}}));
    }
  }
}

TEST(CoordinatorElasticTest, ALostShardEndsTheJobWhateverTheWorkersMay) {
  CoordinatorFixture job(Elastic(3, 1, GO_ON));
  job.Train();
  Lose(job, *job.shards[1]);
  ASSERT_EQ(job.core.phase(), FAILED);
  EXPECT_EQ(job.core.cause()->member(), Id(job.shards[1]));

  CoordinatorFixture replaced(Elastic(3, 1, GO_ON));
  replaced.Train();
  Process& again = replaced.Start(SHARD);
  again.address = replaced.shards[1]->address;
  EXPECT_EQ(replaced.Join(again).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(replaced.core.phase(), FAILED);
}

TEST(CoordinatorElasticTest, WhoComesTakesTheLowestFreePlaceOrWaitsForOne) {
  CoordinatorFixture job(Elastic(3, 1, GO_ON));
  job.Train();
  Process& early = job.Start(WORKER);
  const absl::Status full = job.Join(early);
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(full.message().find("10s"), absl::string_view::npos) << full;
  job.workers[0]->alive = false;
  Lose(job, *job.workers[1]);
  ASSERT_TRUE(job.Join(early).ok());
  EXPECT_EQ(early.ordinal, 0u);
  Process& second = job.StartAndJoin(WORKER);
  EXPECT_EQ(second.ordinal, 1u);
  EXPECT_EQ(job.Join(job.Start(WORKER)).code(), StatusCode::kResourceExhausted);
  const uint64_t before = job.core.view_epoch();
  ASSERT_TRUE(job.Register(second).ok());
  EXPECT_EQ(PlacesOf(job.core.view()), (Places{{1, Id(&second)}, {2, Id(job.workers[2])}}));
  ASSERT_TRUE(job.Register(early).ok());
  EXPECT_EQ(PlacesOf(job.core.view()),
            (Places{{0, Id(&early)}, {1, Id(&second)}, {2, Id(job.workers[2])}}));
  EXPECT_EQ(job.core.view_epoch(), before + 2);
  EXPECT_EQ(job.core.view().members_size(), 5);
  ASSERT_TRUE(job.Report(*job.shards[0], {job.NextVerdict()}).ok());
  EXPECT_EQ(job.core.progress().samples(), 30u);
}

TEST(CoordinatorElasticTest, WhoTrainsAnotherModelIsRefusedAndHarmsNobody) {
  CoordinatorFixture job(Elastic(2, 1, GO_ON));
  job.Train();
  Lose(job, *job.workers[0]);
  Process& stranger = job.StartAndJoin(WORKER);
  RegisterModelRequest other = CoordinatorFixture::Model();
  other.set_training_samples(99);
  EXPECT_EQ(job.Register(stranger, other).code(), StatusCode::kInvalidArgument);
  stranger.header.set_view_epoch(job.core.view_epoch());
  stranger.header.set_job_epoch(1);
  EXPECT_EQ(job.Finish(stranger, 1).code(), StatusCode::kFailedPrecondition) << "in no view";
  EXPECT_TRUE(job.Fail(stranger, "my model is refused").ok());
  EXPECT_EQ(job.core.phase(), TRAINING);
  EXPECT_EQ(job.core.view_epoch(), 2u);
  // Its place is free again, and it does not get it back.
  EXPECT_EQ(job.StartAndJoin(WORKER).ordinal, 0u);
  EXPECT_EQ(job.Register(stranger).code(), StatusCode::kAborted);
  EXPECT_EQ(job.core.view_epoch(), 2u);
  EXPECT_EQ(job.Join(stranger).code(), StatusCode::kAborted);
}

TEST(CoordinatorElasticTest, AContributorThatCannotGoOnStillEndsTheJob) {
  CoordinatorFixture job(Elastic(2, 1, GO_ON));
  job.Train();
  ASSERT_TRUE(job.Fail(*job.workers[0], "no memory").ok());
  EXPECT_EQ(job.core.phase(), FAILED);
  EXPECT_EQ(job.core.cause()->member(), Id(job.workers[0]));
}

TEST(CoordinatorElasticTest, AJoinerThatGoesBeforeItRegistersChangesNoView) {
  for (const bool leaves : {false, true}) {
    CoordinatorFixture job(Elastic(2, 1, GO_ON));
    job.Train();
    Lose(job, *job.workers[0]);
    Process& joiner = job.StartAndJoin(WORKER);
    if (leaves) {
      ASSERT_TRUE(job.Leave(joiner).ok());
      ASSERT_TRUE(job.Leave(joiner).ok()) << "may be repeated";
    } else {
      Lose(job, joiner);
    }
    EXPECT_EQ(job.core.phase(), TRAINING);
    EXPECT_EQ(job.core.view_epoch(), 2u);
    EXPECT_EQ(job.StartAndJoin(WORKER).ordinal, 0u);
  }
}

TEST(CoordinatorElasticTest, ANewProcessAtTheAddressNeedNotWaitForTheLease) {
  for (const LostWorker mode : {GO_ON, WAIT}) {
    CoordinatorFixture job(Elastic(3, 1, mode));
    job.Train();
    Park(job, *job.workers[1]);
    Process& again = job.Start(WORKER);
    again.address = job.workers[1]->address;
    ASSERT_TRUE(job.Join(again).ok());
    EXPECT_EQ(again.ordinal, 1u);
    EXPECT_EQ(job.workers[1]->watched->status().code(), StatusCode::kAborted);
    EXPECT_EQ(job.Heartbeat(*job.workers[1]).code(), StatusCode::kAborted);
    Places places = {{0, Id(job.workers[0])}, {1, 0}, {2, Id(job.workers[2])}};
    if (mode == GO_ON) places.erase(places.begin() + 1);
    EXPECT_EQ(PlacesOf(job.core.view()), places);
    EXPECT_EQ(job.core.view_epoch(), 2u);
    job.workers[1]->alive = false;
    ASSERT_TRUE(job.Register(again).ok());
    EXPECT_EQ(PlacesOf(job.core.view())[1], std::pair(1u, Id(&again)));
    EXPECT_EQ(job.core.view_epoch(), 3u);
    job.Pass(absl::Seconds(30));
    EXPECT_EQ(job.core.view_epoch(), 3u) << "the lease of the one that is gone is no matter";
  }
}

TEST(CoordinatorElasticTest, ContributorZeroThatIsLostBeforeTheStartIsWaitedFor) {
  // Nobody else sets the initial values.
  for (const bool comes : {false, true}) {
    CoordinatorFixture job(Elastic(2, 1, GO_ON));
    job.Gather();
    Lose(job, *job.workers[0]);
    ASSERT_EQ(job.core.phase(), PREPARING);
    EXPECT_EQ(PlacesOf(job.core.view()), (Places{{1, Id(job.workers[1])}}));
    if (comes) {
      Process& replacement = job.StartAndJoin(WORKER);
      EXPECT_EQ(replacement.ordinal, 0u);
      ASSERT_TRUE(job.Register(replacement).ok());
      job.LearnView();
      for (Process* shard : job.shards) ASSERT_TRUE(job.Ready(*shard).ok());
      EXPECT_EQ(job.core.phase(), TRAINING);
      job.Pass(absl::Minutes(3));
      EXPECT_EQ(job.core.phase(), TRAINING);
    } else {
      job.Pass(absl::Seconds(61), /*getting_on=*/false);
      ASSERT_EQ(job.core.phase(), FAILED);
      EXPECT_EQ(job.core.cause()->member(), Id(job.workers[0]));
    }
  }
  // It had set them: from the start of training on it is one of many.
  CoordinatorFixture job(Elastic(2, 1, GO_ON));
  job.Gather();
  Lose(job, *job.workers[0]);
  job.LearnView();
  for (Process* shard : job.shards) ASSERT_TRUE(job.Ready(*shard).ok());
  job.Pass(absl::Minutes(3));
  EXPECT_EQ(job.core.phase(), TRAINING);
}

TEST(CoordinatorElasticTest, AWorkerThatStandsStillIsFoundAlsoAmongFewer) {
  CoordinatorFixture job(Elastic(3, 1, GO_ON));
  job.Train();
  Lose(job, *job.workers[0]);
  Process& idle = job.StartAndJoin(WORKER);  // joins, and never registers
  uint64_t progress = 1000;
  const absl::Time lost = job.now;
  while (job.core.phase() == TRAINING && job.now < lost + absl::Minutes(5)) {
    job.Pass(absl::Seconds(2), /*getting_on=*/false);
    ASSERT_TRUE(job.Heartbeat(*job.workers[1], ++progress).ok());
  }
  ASSERT_EQ(job.core.phase(), FAILED);
  EXPECT_EQ(job.core.cause()->member(), Id(job.workers[2])) << "and not " << idle.pid;
  EXPECT_NE(job.core.cause()->text().find("no progress"), std::string::npos);
}

TEST(CoordinatorElasticTest, StatusSaysWhereTheJobEndsWithThoseThatAreLeft) {
  CoordinatorFixture job(Elastic(2, 1, GO_ON));
  job.Train();
  for (int step = 1; step <= 3; ++step) {
    ASSERT_TRUE(job.Report(*job.shards[0], {job.NextVerdict()}).ok());
  }
  EXPECT_EQ(job.Status().total_steps(), 10u);
  EXPECT_EQ(job.Status().expected_members(), 4u);
  Lose(job, *job.workers[0]);
  EXPECT_EQ(job.core.view().total_steps(), 10u) << "schedules of the learning rate do not change";
  EXPECT_EQ(job.Status().total_steps(), 17u);  // 140 samples are left
  TrainToTheEnd(job);
  EXPECT_EQ(job.core.progress().step(), 17u);
  EXPECT_EQ(job.Status().total_steps(), 17u);
  EXPECT_EQ(job.core.progress().samples(), 200u) << "each sample once in each epoch";
}

TEST(CoordinatorElasticTest, NobodyIsMissingWhereNothingWaitsForThoseThatAreWanted) {
  CoordinatorFixture job(Elastic(4, 1, GO_ON));
  job.Train();
  EXPECT_EQ(job.Status().what_is_missing(), "");
  Lose(job, *job.workers[0]);
  EXPECT_EQ(job.Status().members_size(), 5);
  EXPECT_EQ(job.Status().expected_members(), 6u);
  EXPECT_EQ(job.Status().what_is_missing(), "") << "a worker would blame them for what fails";
  Lose(job, *job.workers[1]);
  EXPECT_EQ(job.Status().what_is_missing(), "");
  EXPECT_EQ(job.Status().wanted_workers(), 4u);
  EXPECT_TRUE(job.core.Waits(job.now).empty());
  job.Pass(absl::Minutes(5));
  EXPECT_EQ(job.core.phase(), TRAINING);

  Process& replacement = job.StartAndJoin(WORKER);
  ASSERT_TRUE(job.Register(replacement).ok());
  EXPECT_EQ(job.Status().wanted_workers(), 4u);
  ASSERT_TRUE(job.SetWorkers(3).ok());
  EXPECT_EQ(job.Status().wanted_workers(), 3u);
  EXPECT_EQ(job.Status().expected_members(), 5u);
}

TEST(CoordinatorElasticTest, WhoIsLostIsToldWithItsAddressSinceWhenAndWhy) {
  CoordinatorFixture job(Elastic(4, 1, GO_ON));
  job.Train();
  job.Pass(absl::Milliseconds(2500));
  const absl::Time heard = job.now;
  Lose(job, *job.workers[1]);
  const auto silent = job.core.HowLost(Id(job.workers[1]));
  ASSERT_TRUE(silent.has_value());
  EXPECT_EQ(silent->address, job.workers[1]->address);
  EXPECT_EQ(silent->heard_at, heard);
  EXPECT_NE(silent->why.find("has not been heard of since " + FormatUtc(heard)), std::string::npos)
      << silent->why;

  Process& again = job.Start(WORKER);
  again.address = job.workers[2]->address;
  ASSERT_TRUE(job.Join(again).ok());
  const auto replaced = job.core.HowLost(Id(job.workers[2]));
  ASSERT_TRUE(replaced.has_value());
  EXPECT_EQ(replaced->address, again.address);
  EXPECT_NE(replaced->why.find("a new process (pid " + std::to_string(again.pid) + ") has come"),
            std::string::npos)
      << replaced->why;

  // One that has come and takes no part yet.
  Process& apart = job.StartAndJoin(WORKER);
  ASSERT_TRUE(job.Fail(apart, "no memory").ok());
  const auto failed = job.core.HowLost(Id(&apart));
  ASSERT_TRUE(failed.has_value());
  EXPECT_NE(failed->why.find("no memory"), std::string::npos);
  Process& leaves = job.StartAndJoin(WORKER);
  ASSERT_TRUE(job.Leave(leaves).ok());
  const auto left = job.core.HowLost(Id(&leaves));
  ASSERT_TRUE(left.has_value());
  EXPECT_EQ(left->why, "it said that it leaves");
  EXPECT_FALSE(job.core.HowLost(Id(&leaves) + 1).has_value()) << "nobody is";
}

TEST(CoordinatorElasticTest, AGapInTheVerdictsIsAcceptedWhereTheLeaderSaysWhereTheJobIs) {
  CoordinatorFixture job(Elastic(2, 1, GO_ON));
  job.Train();
  ASSERT_TRUE(job.Report(*job.shards[0], {job.NextVerdict()}).ok());
  Verdict fifth = job.NextVerdict();
  fifth.set_step(5);
  EXPECT_EQ(job.Report(*job.shards[0], {fifth}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(job.core.progress().step(), 1u);
  JobProgress progress;
  progress.set_step(5);
  progress.set_samples(100);
  progress.set_applied(5);
  progress.mutable_position()->set_epoch(1);
  EXPECT_EQ(job.Report(*job.workers[0], {fifth}, progress).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(job.Report(*job.shards[0], {fifth}, progress).ok());
  ASSERT_TRUE(job.Report(*job.shards[0], {fifth}, progress).ok()) << "may be repeated";
  EXPECT_EQ(job.Status().step(), 5u);
  EXPECT_EQ(job.Status().samples(), 100u);
  ASSERT_TRUE(job.Report(*job.shards[0], {job.NextVerdict()}).ok()) << "and on from there";
  EXPECT_EQ(job.Status().step(), 6u);

  // The end too may have come while nobody listened.
  progress.set_step(10);
  progress.set_samples(200);
  progress.mutable_position()->set_epoch(2);
  for (Process* worker : job.workers) ASSERT_TRUE(job.Finish(*worker, 10).ok());
  EXPECT_EQ(job.core.phase(), TRAINING);
  ASSERT_TRUE(job.Report(*job.shards[0], {}, progress).ok());
  EXPECT_EQ(job.core.phase(), SAVING);
  progress.set_step(11);
  EXPECT_TRUE(job.Report(*job.shards[0], {}, progress).ok());
  EXPECT_EQ(job.core.progress().step(), 10u) << "what is decided after all have finished";
}

TEST(CoordinatorElasticTest, EveryAnswerToAMemberNamesTheGeneration) {
  auto options = Elastic(1, 1, GO_ON);
  CoordinatorCore core(options);
  core.Open(7, "127.0.0.1:4000", absl::UnixEpoch());
  JoinRequest join;
  join.mutable_header()->set_job("digits");
  join.mutable_header()->set_incarnation(5);
  join.set_role(WORKER);
  Replies replies;
  const auto joined = core.Join(join, absl::UnixEpoch(), replies);
  ASSERT_TRUE(joined.ok());
  EXPECT_EQ(joined->generation(), 7u);
  HeartbeatRequest heartbeat;
  *heartbeat.mutable_header() = join.header();
  heartbeat.mutable_header()->set_member(joined->member());
  EXPECT_EQ(core.Heartbeat(heartbeat, absl::UnixEpoch(), replies)->generation(), 7u);
  WatchRequest watch;
  *watch.mutable_header() = heartbeat.header();
  uint64_t generation = 0;
  {
    Replies answers;
    core.Watch(watch, {absl::UnixEpoch()}, answers,
               [&](absl::StatusOr<SharedJobState> reply) { generation = (*reply)->generation(); });
  }
  EXPECT_EQ(generation, 7u);
}

}  // namespace
}  // namespace parley
