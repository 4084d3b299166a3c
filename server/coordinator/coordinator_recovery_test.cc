// A shard is lost: the job waits for another one, and all go back to the last whole checkpoint.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

#include "server/coordinator/coordinator_metrics.h"
#include "server/coordinator/recovery_fixture.h"

namespace parley {
namespace {

using absl::StatusCode;

TEST_F(CoordinatorRecoveryTest, AllGoBackWhenAnotherShardHasItsPlace) {
  TrainWithACheckpoint();
  LoseShard(1);
  EXPECT_EQ(job_.core.phase(), TRAINING) << "it pauses";
  EXPECT_EQ(job_.core.job_epoch(), 1u);
  EXPECT_NE(job_.Status().what_is_missing().find("shard 1 at"), std::string::npos)
      << job_.Status().what_is_missing();
  EXPECT_EQ(job_.Status().expected_members(), 4u);
  auto* const lost = job_.shards[1];
  EXPECT_EQ(job_.Heartbeat(*lost).code(), StatusCode::kAborted);

  const uint64_t view_epoch = job_.core.view_epoch();
  Replace(1);
  EXPECT_EQ(job_.core.phase(), PREPARING);
  const ClusterView& view = job_.core.view();
  EXPECT_EQ(view.job_epoch(), 2u);
  EXPECT_EQ(job_.core.job_epoch(), 2u);
  EXPECT_GT(view.view_epoch(), view_epoch);
  EXPECT_EQ(view.start_from(), "/job/checkpoints/step-00000002");
  EXPECT_EQ(view.start_version(), 2u);
  EXPECT_EQ(view.first_step(), 3u);
  EXPECT_EQ(view.data_position().used(0).end(), 40u);
  ASSERT_EQ(view.members_size(), 4);
  EXPECT_EQ(view.members(1).address(), job_.shards[1]->address);
  EXPECT_EQ(view.members(1).role(), SHARD);
  EXPECT_EQ(view.contributors_size(), 2);
  EXPECT_EQ(job_.core.progress().step(), 2u);
  EXPECT_EQ(job_.Status().steps_lost(), 2u);
  EXPECT_EQ(job_.Status().shards_lost(), 1u);

  // What is of the time before counts no more.
  EXPECT_EQ(job_.Report(*job_.shards[0], {job_.NextVerdict()}).code(), StatusCode::kAborted);
  EXPECT_EQ(job_.Finish(*job_.workers[0], 4).code(), StatusCode::kAborted);
  EXPECT_EQ(job_.Ready(*job_.shards[0], 2).code(), StatusCode::kAborted);
  BecomeReady(2);
  for (int step = 3; step <= 10; ++step) Decide();
  for (auto* worker : job_.workers) ASSERT_TRUE(job_.Finish(*worker, 10).ok());
  EXPECT_EQ(job_.core.phase(), SAVING);
  Write(10);
  EXPECT_EQ(job_.core.phase(), FINISHED);
}

// A worker is lost, or comes, when another one has finished already: no step is left for it. Then
// a shard is lost, and steps are to be done again.
class GoingBackAfterTheLastStep : public CoordinatorRecoveryTest {
 protected:
  explicit GoingBackAfterTheLastStep(LostWorker mode = WAIT)
      : CoordinatorRecoveryTest([mode](CoordinatorCore::Options& options) {
          options.job.mutable_cluster()->set_min_workers(1);
          options.job.mutable_consistency()->mutable_sync()->set_lost_worker(mode);
        }) {}

  void LoseAWorkerWhenTheOtherHasFinished() {
    TrainWithACheckpoint();
    for (int step = 5; step <= 10; ++step) Decide();
    ASSERT_TRUE(job_.Finish(*job_.workers[0], 10).ok());
    job_.workers[1]->alive = false;
    job_.Pass(absl::Seconds(11));
    ASSERT_EQ(job_.core.phase(), SAVING);
  }

  CoordinatorFixture::Process& Another() {
    auto& another = job_.StartAndJoin(WORKER);
    EXPECT_EQ(another.ordinal, 1u);
    EXPECT_TRUE(job_.Register(another).ok());
    return another;
  }

  void GoBack() {
    LoseShard(1);
    Replace(1);
    ASSERT_EQ(job_.core.phase(), PREPARING);
    ASSERT_EQ(job_.core.view().start_version(), 2u);
  }

  std::vector<uint64_t> Contributing() {
    std::vector<uint64_t> members;
    for (const Contributor& contributor : job_.core.view().contributors()) {
      members.push_back(contributor.part_members(0));
    }
    return members;
  }
};

TEST_F(GoingBackAfterTheLastStep, TheLostOneIsWaitedFor) {
  LoseAWorkerWhenTheOtherHasFinished();
  GoBack();
  const uint64_t stayed = job_.workers[0]->header.member();
  EXPECT_EQ(Contributing(), (std::vector<uint64_t>{stayed, 0}));
  EXPECT_NE(job_.Status().what_is_missing().find("worker 1"), std::string::npos)
      << job_.Status().what_is_missing();
  const uint64_t another = Another().header.member();
  EXPECT_EQ(Contributing(), (std::vector<uint64_t>{stayed, another}));
}

TEST_F(GoingBackAfterTheLastStep, WhoHasComeInItsPlaceTakesPart) {
  LoseAWorkerWhenTheOtherHasFinished();
  const uint64_t another = Another().header.member();
  GoBack();
  EXPECT_EQ(Contributing(), (std::vector<uint64_t>{job_.workers[0]->header.member(), another}));
}

class GoingOnAfterTheLastStep : public GoingBackAfterTheLastStep {
 protected:
  GoingOnAfterTheLastStep() : GoingBackAfterTheLastStep(GO_ON) {}
};

TEST_F(GoingOnAfterTheLastStep, WhoHasComeLateTakesPart) {
  LoseAWorkerWhenTheOtherHasFinished();
  const uint64_t another = Another().header.member();
  GoBack();
  EXPECT_EQ(Contributing(), (std::vector<uint64_t>{job_.workers[0]->header.member(), another}));
}

TEST_F(CoordinatorRecoveryTest, ANewProcessAtItsAddressNeedNotWaitForTheLease) {
  TrainWithACheckpoint();
  auto* const lost = job_.shards[0];
  lost->alive = false;
  auto& next = job_.Start(SHARD);
  next.address = lost->address;
  ASSERT_TRUE(job_.Join(next).ok());
  EXPECT_EQ(next.ordinal, 0u);
  EXPECT_EQ(job_.core.phase(), PREPARING);
  EXPECT_EQ(job_.core.job_epoch(), 2u);
  job_.shards[0] = &next;
  BecomeReady(2);
  Decide(/*mark=*/true);
  Write(3);
}

TEST_F(CoordinatorRecoveryTest, WithoutACheckpointItEndsTheJob) {
  job_.Train();
  Decide();
  LoseShard(1);
  EXPECT_EQ(job_.core.phase(), FAILED);
  EXPECT_NE(job_.core.cause()->text().find("shard 1 at"), std::string::npos);
}

TEST_F(CoordinatorRecoveryTest, TheFirstCheckpointIsAskedForAtOnce) {
  job_.Train();
  job_.LearnView();
  EXPECT_EQ((*job_.shards[0]->watched)->checkpoints_asked(), 1u);
}

TEST_F(CoordinatorRecoveryTest, OnlySoOftenAsTheJobSays) {
  TrainWithACheckpoint();
  for (int i = 0; i < 2; ++i) {
    LoseShard(1);
    Replace(1);
    BecomeReady(2);
    Decide();
  }
  LoseShard(0);
  EXPECT_EQ(job_.core.phase(), FAILED);
  EXPECT_NE(job_.core.cause()->text().find("shard 0 at"), std::string::npos);
}

TEST_F(CoordinatorRecoveryTest, WhereNobodyComesTheJobEndsWithWhatHappened) {
  TrainWithACheckpoint();
  LoseShard(1);
  job_.Pass(absl::Seconds(58));
  EXPECT_EQ(job_.core.phase(), TRAINING);
  job_.Pass(absl::Seconds(4));
  EXPECT_EQ(job_.core.phase(), FAILED);
  EXPECT_NE(job_.core.cause()->text().find("shard 1 at"), std::string::npos)
      << job_.core.cause()->text();
}

TEST_F(CoordinatorRecoveryTest, AllShardsMayBeLostAtOnce) {
  TrainWithACheckpoint();
  for (auto* shard : job_.shards) shard->alive = false;
  job_.Pass(absl::Seconds(11));
  Replace(0);
  EXPECT_EQ(job_.core.phase(), TRAINING) << "the other one is missing";
  Replace(1);
  EXPECT_EQ(job_.core.phase(), PREPARING);
  EXPECT_EQ(job_.core.job_epoch(), 2u);
  BecomeReady(2);
}

TEST_F(CoordinatorRecoveryTest, TwiceInARow) {
  TrainWithACheckpoint();
  LoseShard(0);
  Replace(0);
  EXPECT_EQ(job_.core.phase(), PREPARING);
  LoseShard(0);
  Replace(0);
  EXPECT_EQ(job_.core.phase(), PREPARING);
  EXPECT_EQ(job_.core.job_epoch(), 3u);
  BecomeReady(2);
  EXPECT_EQ(job_.Status().steps_lost(), 2u) << "the second time there were none";
}

TEST_F(CoordinatorRecoveryTest, ACommitThatIsUnderWayDecidesWhereTo) {
  TrainWithACheckpoint();
  mark_.Clear();
  Decide(/*mark=*/true);
  const FileWork commit = WriteFiles(5);
  ASSERT_EQ(commit.kind, FileWork::Kind::kCommit);
  LoseShard(1);
  Replace(1);
  EXPECT_EQ(job_.core.phase(), TRAINING) << "it may be whole at any moment";
  job_.Done(commit);
  EXPECT_EQ(job_.core.phase(), PREPARING);
  EXPECT_EQ(job_.core.view().start_version(), 5u);
}

TEST_F(CoordinatorRecoveryTest, ACommitThatNeverEndsHasAsLongAsAnythingElse) {
  TrainWithACheckpoint();
  mark_.Clear();
  Decide(/*mark=*/true);
  (void)WriteFiles(5);
  LoseShard(1);
  Replace(1);
  const absl::Time came = job_.now;
  HeartbeatRequest waits;
  waits.set_moves(1);
  while (job_.core.phase() == TRAINING && job_.now < came + absl::Minutes(5)) {
    job_.Pass(absl::Seconds(2), /*getting_on=*/false);
    waits.set_progress(waits.progress() + 1000);
    for (auto* worker : job_.workers) ASSERT_TRUE(job_.Heartbeat(*worker, waits).ok());
  }
  ASSERT_EQ(job_.core.phase(), FAILED);
  EXPECT_GE(job_.now - came, absl::Seconds(60));
  EXPECT_LE(job_.now - came, absl::Seconds(70));
  EXPECT_NE(job_.core.cause()->text().find(
                "the coordinator: writes the manifest of /job/checkpoints/step-00000005"),
            std::string::npos)
      << job_.core.cause()->text();
}

// Without `every` nobody else would ask, and the loss of a shard would end the job for good.
TEST_F(CoordinatorRecoveryTest, TheFirstOneIsAskedForAgainWhereItFails) {
  const auto asked = [&] {
    job_.shards[0]->seen_revision = 0;
    job_.Watch(*job_.shards[0]);
    return (*job_.shards[0]->watched)->checkpoints_asked();
  };
  job_.Train();
  EXPECT_EQ(asked(), 1u);
  job_.Pass(absl::Seconds(90));
  EXPECT_EQ(asked(), 1u) << "it is still to come";
  for (uint64_t failed = 1; failed <= 2; ++failed) {
    Decide(/*mark=*/true);
    job_.Done(TheWork(), absl::ResourceExhaustedError("no space left"));
    EXPECT_EQ(TheWork().kind, FileWork::Kind::kAbandon);
    job_.Pass(absl::Seconds(59));
    EXPECT_EQ(asked(), failed) << "not at once: the disk is as full";
    job_.Pass(absl::Seconds(2));
    EXPECT_EQ(asked(), failed + 1);
  }
  Decide(/*mark=*/true);
  Write(3);
  job_.Pass(absl::Seconds(90));
  EXPECT_EQ(asked(), 3u);
}

TEST_F(CoordinatorRecoveryTest, OneThatComesThroughAfterTheJobHasGoneBackBeforeItGoesAgain) {
  TrainWithACheckpoint();
  mark_.Clear();
  Decide(/*mark=*/true);
  const FileWork commit = WriteFiles(5);
  job_.Pass(absl::Seconds(61));  // the disk does not answer, and it is given up
  LoseShard(1);
  Replace(1);
  ASSERT_EQ(job_.core.view().start_version(), 2u);
  job_.Done(commit);
  EXPECT_EQ(job_.core.checkpoint().whole_step(), 2u);
  const auto work = job_.core.TakeFileWork();
  ASSERT_FALSE(work.empty());
  EXPECT_EQ(work[0].kind, FileWork::Kind::kAbandon);
  EXPECT_EQ(work[0].folder, commit.folder);
  EXPECT_TRUE(work[0].damaged) << "else step 5 could not be written again";
}

TEST_F(CoordinatorRecoveryTest, ACommitThatFailsIsNoPlaceToGoBackTo) {
  TrainWithACheckpoint();
  mark_.Clear();
  Decide(/*mark=*/true);
  const FileWork commit = WriteFiles(5);
  LoseShard(1);
  Replace(1);
  job_.Done(commit, absl::UnavailableError("the disk"));
  EXPECT_EQ(job_.core.phase(), PREPARING);
  EXPECT_EQ(job_.core.view().start_version(), 2u);
  FileWork abandon = TheWork();
  ASSERT_EQ(abandon.kind, FileWork::Kind::kAbandon);
  abandon.committed = true;  // its manifest is there after all
  job_.Done(abandon);
  EXPECT_EQ(job_.core.checkpoint().whole_step(), 2u);
  const FileWork remove = TheWork();
  EXPECT_EQ(remove.kind, FileWork::Kind::kAbandon);
  EXPECT_EQ(remove.folder, commit.folder);
  EXPECT_TRUE(remove.damaged) << "else step 5 could not be written again";
}

TEST_F(CoordinatorRecoveryTest, OneThatIsHalfWrittenIsGivenUpAndMayBeWrittenAgain) {
  TrainWithACheckpoint();
  mark_.Clear();
  Decide(/*mark=*/true);
  job_.Done(TheWork());
  ASSERT_TRUE(job_.ReportFile(FileOf(*job_.shards[0], 5)).ok());
  LoseShard(1);
  EXPECT_EQ(job_.Status().checkpoints_failed(), 1u) << "`parley checkpoint` waits for it in vain";
  EXPECT_NE(job_.Status().checkpoint_error().find("was given up: shard 1 at"), std::string::npos);
  EXPECT_EQ(CoordinatorMetrics::Read(job_.core).checkpoints_failed, 0u) << "no disk is to blame";
  EXPECT_EQ(TheWork().kind, FileWork::Kind::kAbandon);
  Replace(1);
  BecomeReady(2);
  for (int step = 3; step <= 4; ++step) Decide();
  Decide(/*mark=*/true);
  Write(5);
  EXPECT_EQ(job_.core.view().start_version(), 2u);
}

TEST_F(CoordinatorRecoveryTest, SoIsOneThatWaitsForItsFolder) {
  TrainWithACheckpoint();
  mark_.Clear();
  Decide(/*mark=*/true);
  ASSERT_EQ(TheWork().kind, FileWork::Kind::kCreateFolder);
  LoseShard(1);
  Replace(1);
  EXPECT_EQ(job_.core.phase(), PREPARING);
  EXPECT_EQ(job_.Status().checkpoints_failed(), 1u);
  EXPECT_EQ(CoordinatorMetrics::Read(job_.core).checkpoints_failed, 0u);
}

TEST_F(CoordinatorRecoveryTest, WhereItWouldGoBackToIsAMetric) {
  job_.Train();
  EXPECT_EQ(CoordinatorMetrics::Read(job_.core).goes_back_to_step, 0u);
  Decide();
  Decide(/*mark=*/true);
  Write(2);
  EXPECT_EQ(CoordinatorMetrics::Read(job_.core).goes_back_to_step, 2u);
  EXPECT_EQ(CoordinatorMetrics::Read(job_.core).expected_members, 4u);
}

TEST_F(CoordinatorRecoveryTest, WhoHadFinishedTrainsAgain) {
  TrainWithACheckpoint();
  for (int step = 5; step <= 10; ++step) Decide();
  for (auto* worker : job_.workers) ASSERT_TRUE(job_.Finish(*worker, 10).ok());
  EXPECT_EQ(job_.core.phase(), SAVING);
  job_.Done(TheWork());
  LoseShard(1);
  EXPECT_EQ(job_.core.phase(), SAVING);
  Replace(1);
  EXPECT_EQ(job_.core.phase(), PREPARING);
  (void)job_.core.TakeFileWork();
  BecomeReady(2);
  for (int step = 3; step <= 10; ++step) Decide();
  EXPECT_EQ(job_.core.phase(), TRAINING);
  for (auto* worker : job_.workers) ASSERT_TRUE(job_.Finish(*worker, 10).ok());
  Write(10);
  EXPECT_EQ(job_.core.phase(), FINISHED);
}

constexpr char kOwn[] = "/job/checkpoints/step-00000001";

class FromACheckpointOfItsOwn : public CoordinatorRecoveryTest {
 protected:
  FromACheckpointOfItsOwn()
      : CoordinatorRecoveryTest([](CoordinatorCore::Options& options) {
          StartPoint start;
          start.folder = kOwn;
          start.manifest.set_step(1);
          *start.manifest.mutable_tensors() = CoordinatorFixture::Model().tensors();
          start.manifest.mutable_data_position()->add_used()->set_end(20);
          options.start = std::move(start);
        }) {}

  FileWork::Keep KeptWith(uint64_t step) {
    Decide(/*mark=*/true);
    job_.Done(WriteFiles(step));
    const FileWork remove = TheWork();
    EXPECT_EQ(remove.kind, FileWork::Kind::kRemoveOld);
    return remove.keep;
  }
};

TEST_F(FromACheckpointOfItsOwn, ThatOneStaysWhereverTheJobGoesBackTo) {
  job_.Train(1);
  EXPECT_EQ(KeptWith(2).in_use.count(kOwn), 1u);
  LoseShard(1);
  Replace(1);
  BecomeReady(2);
  const FileWork::Keep keep = KeptWith(3);
  EXPECT_EQ(keep.in_use, (std::set<std::string>{kOwn, "/job/checkpoints/step-00000002",
                                                "/job/checkpoints/step-00000003"}));
}

TEST_F(FromACheckpointOfItsOwn, ItWouldGoBackToThatOneUntilThereIsAnother) {
  job_.Train(1);
  EXPECT_EQ(CoordinatorMetrics::Read(job_.core).checkpoint_step, 0u);
  EXPECT_EQ(CoordinatorMetrics::Read(job_.core).goes_back_to_step, 1u);
  (void)KeptWith(2);
  EXPECT_EQ(CoordinatorMetrics::Read(job_.core).goes_back_to_step, 2u);
}

// An earlier release did not log what the job has started from.
TEST_F(FromACheckpointOfItsOwn, ThatOneStaysAfterAnUpgradeToo) {
  job_.Train(1);
  CoordinatorState state = job_.core.DurableState();
  state.clear_started_from();
  CoordinatorCore next(job_.options_);
  ASSERT_EQ(next.Restore(state), absl::OkStatus());
  EXPECT_EQ(next.DurableState().started_from(), kOwn);
  // Once the job has gone back nobody knows it any more: not where it has gone back to.
  state.set_job_epoch(2);
  state.mutable_view()->set_job_epoch(2);
  CoordinatorCore later(job_.options_);
  ASSERT_EQ(later.Restore(state), absl::OkStatus());
  EXPECT_EQ(later.DurableState().started_from(), "");
}

TEST_F(FromACheckpointOfItsOwn, ANewCoordinatorNeedNotReadIt) {
  job_.Train(1);
  auto options = job_.options_;
  options.start.reset();
  CoordinatorCore next(options);
  const absl::Status restored = next.Restore(job_.core.DurableState());
  ASSERT_TRUE(restored.ok()) << restored;
  next.Open(2, "127.0.0.1:4001", job_.now);
  EXPECT_EQ(next.view().start_from(), kOwn);
  EXPECT_EQ(next.DurableState().started_from(), kOwn) << "it stays, too";
  // Who registers is held to what the others have registered.
  RegisterModelRequest model = CoordinatorFixture::Model();
  *model.mutable_header() = job_.workers[0]->header;
  Replies replies;
  EXPECT_TRUE(next.RegisterModel(model, job_.now, replies).ok());
  model.mutable_tensors(0)->set_name("fc2.weight");
  EXPECT_EQ(next.RegisterModel(model, job_.now, replies).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(CoordinatorRecoveryTest, ANewCoordinatorGoesOnWaiting) {
  TrainWithACheckpoint();
  LoseShard(1);
  CoordinatorCore next(job_.options_);
  const absl::Status restored = next.Restore(job_.core.DurableState());
  ASSERT_TRUE(restored.ok()) << restored;
  next.Open(2, "127.0.0.1:4001", job_.now);
  auto& shard = job_.Start(SHARD);
  Replies replies;
  ASSERT_TRUE(next.Join(job_.JoinOf(shard), job_.now, replies).ok());
  EXPECT_EQ(next.phase(), PREPARING);
  EXPECT_EQ(next.view().start_version(), 2u);
  EXPECT_EQ(next.view().data_position().used(0).end(), 40u);
  EXPECT_EQ(next.job_epoch(), 2u);
  EXPECT_EQ(next.shards_lost(), 1u);
}

}  // namespace
}  // namespace parley
