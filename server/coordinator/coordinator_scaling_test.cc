// An operator wants more or fewer workers: `parley scale`, `parley drain` (docs/membership.md).
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
using testing::HasSubstr;
using Process = CoordinatorFixture::Process;

// Whether the process is told to go, as it hears now.
bool IsTold(CoordinatorFixture& job, Process& process) {
  process.seen_revision = 0;
  job.Watch(process);
  return (*process.watched)->drained();
}

TEST(CoordinatorScalingTest, WorkersThatAreAddedTakePartFromTheNextView) {
  CoordinatorFixture job(Elastic(2, 1, GO_ON));
  job.Train();
  EXPECT_EQ(job.Join(job.Start(WORKER)).code(), StatusCode::kResourceExhausted);
  const auto reply = job.SetWorkers(4);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->before(), 2u);
  EXPECT_EQ(reply->here(), 2u);
  EXPECT_FALSE(reply->own_program());
  EXPECT_EQ(job.Status().wanted_workers(), 4u);
  EXPECT_EQ(job.core.view_epoch(), 1u) << "nobody has come yet, and nobody is waited for";
  EXPECT_EQ(job.Status().what_is_missing(), "");

  Process& third = job.StartAndJoin(WORKER);
  Process& fourth = job.StartAndJoin(WORKER);
  EXPECT_EQ(third.ordinal, 2u);
  EXPECT_EQ(fourth.ordinal, 3u);
  ASSERT_TRUE(job.Register(fourth).ok());
  ASSERT_TRUE(job.Register(third).ok());
  EXPECT_EQ(
      PlacesOf(job.core.view()),
      (Places{
          {0, Id(job.workers[0])}, {1, Id(job.workers[1])}, {2, Id(&third)}, {3, Id(&fourth)}}));
  EXPECT_EQ(job.Join(job.Start(WORKER)).code(), StatusCode::kResourceExhausted);
}

TEST(CoordinatorScalingTest, WhoseProgramTrainsTheJobIsSaid) {
  CoordinatorCore::Options options = Elastic(2, 1, GO_ON);
  options.job.mutable_data()->mutable_own();
  CoordinatorFixture job(std::move(options));
  job.Train();
  const auto reply = job.SetWorkers(3);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(reply->own_program());
}

TEST(CoordinatorScalingTest, TheHighestOrdinalsAreToldToGoAndLeaveTheViewWhenTheyDo) {
  CoordinatorFixture job(Elastic(4, 1, GO_ON));
  job.Train();
  for (Process* worker : job.workers) Park(job, *worker);
  Park(job, *job.shards[0]);
  const auto reply = job.SetWorkers(2);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->here(), 2u);
  for (uint32_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(job.workers[i]->watched.has_value() && job.workers[i]->watched->ok());
    EXPECT_EQ((*job.workers[i]->watched)->drained(), i >= 2) << i;
    EXPECT_EQ(IsTold(job, *job.workers[i]), i >= 2) << i;
  }
  EXPECT_FALSE((*job.shards[0]->watched)->drained());
  // Until they go they take part as before.
  EXPECT_EQ(job.core.view_epoch(), 1u);
  ASSERT_TRUE(job.Report(*job.shards[0], {job.NextVerdict()}).ok());

  Park(job, *job.workers[3]);
  Park(job, *job.shards[0]);
  ASSERT_TRUE(job.Depart(*job.workers[3]).ok());
  EXPECT_EQ(job.core.view_epoch(), 2u);
  EXPECT_EQ(job.core.view().first_step(), 2u);
  EXPECT_EQ(PlacesOf(job.core.view()),
            (Places{{0, Id(job.workers[0])}, {1, Id(job.workers[1])}, {2, Id(job.workers[2])}}));
  EXPECT_EQ((*job.shards[0]->watched)->view().view_epoch(), 2u);
  EXPECT_EQ(job.workers[3]->watched->status().code(), StatusCode::kAborted);
  ASSERT_TRUE(job.Depart(*job.workers[3]).ok()) << "may be repeated";
  ASSERT_TRUE(job.Depart(*job.workers[2]).ok());
  EXPECT_EQ(job.core.view().contributors_size(), 2);
  EXPECT_EQ(job.core.phase(), TRAINING);
  EXPECT_TRUE(job.core.WasLetGo(Id(job.workers[3])));
  EXPECT_FALSE(job.core.WasLetGo(Id(job.workers[0])));
  EXPECT_EQ(job.Status().members_size(), 4);
  // Nobody is missed, and nobody is taken in.
  job.workers[2]->alive = job.workers[3]->alive = false;
  job.Pass(absl::Minutes(2));
  EXPECT_EQ(job.core.phase(), TRAINING);
  EXPECT_EQ(job.Join(job.Start(WORKER)).code(), StatusCode::kResourceExhausted);
}

TEST(CoordinatorScalingTest, OneThatIsToldToGoKeepsItsPlaceUntilThenAndHasNoSuccessorInIt) {
  CoordinatorFixture job(Elastic(4, 1, GO_ON));
  job.Train();
  ASSERT_TRUE(job.Drain(WORKER, 1).ok());
  ASSERT_TRUE(job.Drain(WORKER, 1).ok()) << "may be repeated";
  EXPECT_EQ(job.Status().wanted_workers(), 3u);
  EXPECT_TRUE(IsTold(job, *job.workers[1]));
  EXPECT_EQ(job.Join(job.Start(WORKER)).code(), StatusCode::kResourceExhausted);
  ASSERT_TRUE(job.SetWorkers(4).ok());
  Process& other = job.StartAndJoin(WORKER);
  EXPECT_EQ(other.ordinal, 4u) << "worker 1 is still there";
  ASSERT_TRUE(job.Register(other).ok());
  EXPECT_EQ(job.core.view().contributors_size(), 5);
  EXPECT_EQ(job.core.StayingContributors(), 4u);
  ASSERT_TRUE(job.Depart(*job.workers[1]).ok());
  EXPECT_EQ(job.Join(job.Start(WORKER)).code(), StatusCode::kResourceExhausted);
  // A process of its address, started again, is one more.
  Process& again = job.Start(WORKER);
  again.address = job.workers[1]->address;
  EXPECT_EQ(job.Join(again).code(), StatusCode::kResourceExhausted);
  ASSERT_TRUE(job.SetWorkers(5).ok());
  ASSERT_TRUE(job.Join(again).ok());
  EXPECT_EQ(again.ordinal, 1u);
}

TEST(CoordinatorScalingTest, WhileMembersGatherTheNumberThatIsWaitedForChanges) {
  CoordinatorFixture job(Elastic(4, 1, GO_ON));
  for (int i = 0; i < 2; ++i) job.shards.push_back(&job.StartAndJoin(SHARD));
  for (int i = 0; i < 3; ++i) {
    job.workers.push_back(&job.StartAndJoin(WORKER));
    ASSERT_TRUE(job.Register(*job.workers[i]).ok());
  }
  EXPECT_THAT(job.Status().what_is_missing(), HasSubstr("worker 3 has not joined"));
  ASSERT_TRUE(job.SetWorkers(5).ok());
  EXPECT_THAT(job.Status().what_is_missing(), HasSubstr("worker 4 has not joined"));
  EXPECT_EQ(job.Status().expected_members(), 7u);
  EXPECT_EQ(job.core.phase(), GATHERING);
  ASSERT_TRUE(job.SetWorkers(2).ok());
  EXPECT_EQ(job.core.phase(), PREPARING) << "two are there";
  EXPECT_EQ(PlacesOf(job.core.view()), (Places{{0, Id(job.workers[0])}, {1, Id(job.workers[1])}}));
  EXPECT_EQ(job.core.view().members_size(), 4);
  EXPECT_EQ(job.core.view().total_steps(), 10u) << "two epochs of 100 samples, 20 to a step";
  EXPECT_TRUE(IsTold(job, *job.workers[2]));
  EXPECT_TRUE(job.Register(*job.workers[2]).ok()) << "it may not have heard yet";
  ASSERT_TRUE(job.Depart(*job.workers[2]).ok());
  EXPECT_EQ(job.core.phase(), PREPARING);
  EXPECT_EQ(job.core.view_epoch(), 1u);
}

TEST(CoordinatorScalingTest, WhereContributor0WasLostWhileMembersGatherAPlaceIsLeftForIt) {
  CoordinatorFixture job(Elastic(3, 1, GO_ON));
  for (int i = 0; i < 3; ++i) {
    job.workers.push_back(&job.StartAndJoin(WORKER));
    ASSERT_TRUE(job.Register(*job.workers[i]).ok());
  }
  job.shards.push_back(&job.StartAndJoin(SHARD));
  job.workers[0]->alive = false;
  job.Pass(absl::Seconds(20));
  job.shards.push_back(&job.StartAndJoin(SHARD));
  ASSERT_EQ(job.core.phase(), GATHERING);
  ASSERT_TRUE(job.SetWorkers(2).ok());
  EXPECT_EQ(job.core.phase(), GATHERING) << "nobody would give the initial values";
  EXPECT_TRUE(IsTold(job, *job.workers[2]));
  ASSERT_TRUE(job.Depart(*job.workers[2]).ok());
  Process& other = job.StartAndJoin(WORKER);
  EXPECT_EQ(other.ordinal, 0u);
  ASSERT_TRUE(job.Register(other).ok());
  EXPECT_EQ(job.core.phase(), PREPARING);
}

TEST(CoordinatorScalingTest, OneThatWasToldToGoWhileMembersGatherMayVanish) {
  CoordinatorFixture job(Elastic(3, 1, GO_ON));
  for (int i = 0; i < 2; ++i) job.shards.push_back(&job.StartAndJoin(SHARD));
  for (int i = 0; i < 2; ++i) job.workers.push_back(&job.StartAndJoin(WORKER));
  ASSERT_TRUE(job.SetWorkers(1).ok());
  EXPECT_EQ(job.core.phase(), GATHERING) << "the other one has not registered its model";
  Lose(job, *job.workers[1]);
  EXPECT_EQ(job.core.phase(), GATHERING);
  ASSERT_TRUE(job.Register(*job.workers[0]).ok());
  EXPECT_EQ(job.core.phase(), PREPARING);
}

TEST(CoordinatorScalingTest, OneThatDoesNotGoCountsAsLost) {
  CoordinatorFixture job(Elastic(3, 1, GO_ON));
  job.Train();
  job.Pass(absl::Minutes(3));
  ASSERT_TRUE(job.Drain(WORKER, 2).ok());
  job.Pass(absl::Seconds(59));
  EXPECT_EQ(job.core.view_epoch(), 1u);
  job.Pass(absl::Seconds(2));
  EXPECT_EQ(job.core.view_epoch(), 2u);
  EXPECT_EQ(job.core.phase(), TRAINING);
  EXPECT_EQ(job.Heartbeat(*job.workers[2]).code(), StatusCode::kAborted);
  EXPECT_FALSE(job.core.WasLetGo(Id(job.workers[2])));
  EXPECT_EQ(job.Join(job.Start(WORKER)).code(), StatusCode::kResourceExhausted);
}

TEST(CoordinatorScalingTest, WhoStandsStillWhileItIsToldToGoDoesNotEndTheJob) {
  CoordinatorFixture job(Elastic(2, 1, GO_ON));
  job.Train();
  job.Pass(absl::Seconds(30));
  ASSERT_TRUE(job.Drain(WORKER, 1).ok());
  const absl::Time until = job.now + absl::Seconds(65);
  for (uint64_t progress = 1'000; job.now < until; ++progress) {
    job.Pass(absl::Milliseconds(500), /*getting_on=*/false);
    for (auto& process : job.processes) {
      if (process.get() != job.workers[1]) (void)job.Heartbeat(*process, progress);
    }
  }
  EXPECT_EQ(job.core.phase(), TRAINING);
  EXPECT_EQ(job.core.view().contributors_size(), 1);
}

// Who was told to go half a stall_timeout after it had hung is let go after a whole one.
TEST(CoordinatorScalingTest, ThoseThatWaitForOneThatWasToldToGoAreNotGivenUpBeforeItIs) {
  CoordinatorFixture job(Elastic(2, 1, GO_ON));
  job.Train();
  HeartbeatRequest waits;
  waits.set_progress(1'000'000);
  waits.set_moves(1);
  const auto wait = [&](absl::Duration time) {
    const absl::Time until = job.now + time;
    while (job.now < until) {
      job.Pass(absl::Milliseconds(500), /*getting_on=*/false);
      waits.set_progress(waits.progress() + 1);
      for (auto& process : job.processes) (void)job.Heartbeat(*process, waits);
    }
  };
  wait(absl::Seconds(30));
  ASSERT_TRUE(job.Drain(WORKER, 1).ok());
  wait(absl::Seconds(65));
  EXPECT_EQ(job.core.phase(), TRAINING) << (job.core.cause() ? job.core.cause()->text() : "");
  EXPECT_EQ(job.core.view().contributors_size(), 1);
}

TEST(CoordinatorScalingTest, TooFewThatStayAreTooFewWhoeverIsStillThere) {
  CoordinatorFixture job(Elastic(4, 2, GO_ON));
  job.Train();
  ASSERT_TRUE(job.SetWorkers(2).ok());
  EXPECT_EQ(job.Drain(WORKER, 0).code(), StatusCode::kFailedPrecondition);
  // Those that are about to go may be lost.
  Lose(job, *job.workers[3]);
  ASSERT_EQ(job.core.phase(), TRAINING);
  EXPECT_EQ(job.core.view().contributors_size(), 3);
  Lose(job, *job.workers[1]);
  ASSERT_EQ(job.core.phase(), FAILED);
  EXPECT_EQ(job.core.cause()->member(), Id(job.workers[1]));
}

TEST(CoordinatorScalingTest, LeavingUnaskedIsNoWayOut) {
  CoordinatorFixture job(Elastic(3, 1, GO_ON));
  job.Train();
  const absl::Status status = job.Depart(*job.workers[1]);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("nobody has told worker 1 at"));
  EXPECT_EQ(job.core.view_epoch(), 1u);
  EXPECT_EQ(job.core.phase(), TRAINING);
}

TEST(CoordinatorScalingTest, TheLastOnesFinishWithoutThoseThatAreGone) {
  CoordinatorFixture job(Elastic(3, 1, GO_ON));
  job.Train();
  ASSERT_TRUE(job.SetWorkers(2).ok());
  TrainToTheEnd(job);
  const uint64_t last = job.core.progress().step();
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(job.Finish(*job.workers[i], last).ok());
  EXPECT_EQ(job.core.phase(), TRAINING) << "worker 2 has a part of the last evaluation";
  EXPECT_EQ(job.SetWorkers(3).status().code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(job.Depart(*job.workers[2]).ok());
  EXPECT_EQ(job.core.phase(), SAVING);
}

TEST(CoordinatorScalingTest, WhatItIsRefusedForIsSaid) {
  const auto expect = [](const absl::Status& status, const std::vector<std::string>& parts) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
    for (const std::string& part : parts) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    }
  };
  const std::string instead = "`parley stop`) and start it from its checkpoint with another ";
  {
    CoordinatorFixture job(Elastic(3, 1, WAIT));
    job.Train();
    expect(job.SetWorkers(4).status(), {"lost_worker: WAIT", instead + "cluster.workers"});
    expect(job.Drain(WORKER, 1), {"lost_worker: WAIT"});
  }
  {
    auto options = Elastic(2, 2, GO_ON);
    options.job.mutable_consistency()->mutable_sync()->set_deterministic(true);
    CoordinatorFixture job(options);
    job.Train();
    expect(job.SetWorkers(3).status(), {"deterministic"});
  }
  {
    auto options = CoordinatorFixture::DefaultOptions(2, 2);
    options.job.mutable_cluster()->set_stages(2);
    CoordinatorFixture job(options);
    job.Train();
    expect(job.SetWorkers(3).status(), {"pipelines and node groups", instead + "cluster.workers"});
    expect(job.Drain(STAGE, 1), {"pipelines"});
  }
  {
    auto options = Elastic(4, 1, GO_ON);
    options.job.mutable_consistency()->mutable_sync()->set_backup(2);
    CoordinatorFixture job(options);
    job.Gather();
    expect(job.SetWorkers(4).status(), {"is PREPARING", "try again when it trains"});
    for (Process* shard : job.shards) ASSERT_TRUE(job.Ready(*shard).ok());
    expect(job.SetWorkers(2).status(), {"3 workers at least", "backup"});
    ASSERT_TRUE(job.SetWorkers(3).ok());
    expect(job.Drain(SHARD, 1), {"shard 1", "parameters", instead + "cluster.shards"});
    expect(job.SetWorkers(5000).status(), {"4096"});
    EXPECT_EQ(job.Drain(WORKER, 7).code(), StatusCode::kNotFound);
    EXPECT_EQ(job.Drain(COORDINATOR, 0).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(job.core.wanted_workers(), 3u) << "a refusal changes nothing";
    ASSERT_TRUE(job.Stop().ok());
    expect(job.SetWorkers(4).status(), {"is about to end", "stopped by an operator"});
  }
  {
    CoordinatorFixture job(Elastic(3, 2, GO_ON));
    job.Train();
    expect(job.SetWorkers(1).status(), {"2 workers at least", instead + "cluster.min_workers"});
    ASSERT_TRUE(job.Drain(WORKER, 0).ok());
    expect(job.Drain(WORKER, 1), {"without worker 1 at", "needs 2"});
    SetWorkersRequest another;
    another.set_job("another");
    another.set_workers(3);
    Replies replies;
    EXPECT_EQ(job.core.SetWorkers(another, job.now, replies).status().code(),
              StatusCode::kNotFound);
  }
}

TEST(CoordinatorScalingTest, AWorkerThatHasNotBegunStandsInForNobody) {
  CoordinatorFixture job(Elastic(3, 2, GO_ON));
  job.Train();
  Lose(job, *job.workers[0]);
  job.StartAndJoin(WORKER);
  // Worker 2 would go, and of those that stay only worker 1 trains.
  const absl::Status status = job.SetWorkers(2).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("have not begun yet"));
  EXPECT_EQ(job.core.wanted_workers(), 3u);
}

TEST(CoordinatorScalingTest, TheNextCoordinatorKnowsWhoIsToGoAndHowManyStay) {
  auto options = Elastic(4, 1, GO_ON);
  CoordinatorFixture job(options);
  job.Train();
  ASSERT_TRUE(job.SetWorkers(6).ok());
  Process& fifth = job.StartAndJoin(WORKER);
  ASSERT_TRUE(job.Register(fifth).ok());
  const uint64_t recorded = job.core.durable_revision();
  ASSERT_TRUE(job.SetWorkers(3).ok());
  EXPECT_GT(job.core.durable_revision(), recorded) << "recorded before anybody is told";
  ASSERT_TRUE(job.Depart(fifth).ok());

  CoordinatorCore next(options);
  ASSERT_TRUE(next.Restore(job.core.DurableState()).ok());
  next.Open(2, "127.0.0.1:5000", job.now);
  EXPECT_EQ(next.wanted_workers(), 3u);
  EXPECT_EQ(next.StayingContributors(), 3u);
  const auto status = next.GetStatus({}, job.now);
  ASSERT_TRUE(status.ok()) << status.status();
  for (const MemberStatus& member : status->members()) {
    EXPECT_EQ(member.drained(), member.member().role() == WORKER && member.member().ordinal() == 3);
  }
  // Who was told by the former one goes.
  LeaveRequest leave;
  *leave.mutable_header() = job.workers[3]->header;
  leave.set_drained(true);
  Replies replies;
  EXPECT_TRUE(next.Leave(leave, job.now, replies).ok());
  EXPECT_EQ(next.view().contributors_size(), 3);
}

TEST(CoordinatorScalingTest, AStateWithMorePlacesThanWorkersIsRefused) {
  auto options = Elastic(4, 1, GO_ON);
  CoordinatorFixture job(options);
  job.Train();
  ASSERT_TRUE(job.SetWorkers(3).ok());
  CoordinatorState state = job.core.DurableState();
  for (LoggedMember& member : *state.mutable_members()) member.set_drained(false);
  EXPECT_EQ(CoordinatorCore(options).Restore(state).code(), StatusCode::kDataLoss);
  for (const uint32_t wrong : {0u, 5000u}) {
    state = job.core.DurableState();
    state.set_wanted_workers(wrong);
    EXPECT_EQ(CoordinatorCore(options).Restore(state).code(), StatusCode::kDataLoss) << wrong;
  }
}

}  // namespace
}  // namespace parley
