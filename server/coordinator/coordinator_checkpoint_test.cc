// Checkpoints while the job trains: which version, in what order, and what becomes of failures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/coordinator/coordinator_fixture.h"

namespace parley {
namespace {

using absl::StatusCode;

class CoordinatorCheckpointTest : public testing::Test {
 protected:
  explicit CoordinatorCheckpointTest(absl::Duration period = absl::ZeroDuration())
      : job_([period] {
          auto options = CoordinatorFixture::DefaultOptions(2, 2);
          options.checkpoint_period = period;
          options.job.mutable_checkpoint()->set_keep_last(3);
          return options;
        }()) {}

  // The leader decides a step and, if told so, marks its version.
  void Decide(bool mark = false) {
    const Verdict verdict = job_.NextVerdict();
    JobProgress progress;
    progress.set_step(verdict.step());
    *progress.mutable_position() = PositionAfter(verdict);
    if (mark) {
      mark_.set_version(verdict.step());
      *mark_.mutable_position() = progress.position();
    }
    if (mark_.version() != 0) *progress.mutable_mark() = mark_;
    ASSERT_TRUE(job_.Report(*job_.shards[0], {verdict}, progress).ok());
  }

  // Of two workers with batches of 10 in order.
  static DataPosition PositionAfter(const Verdict& verdict) {
    DataPosition position;
    const uint64_t end = 20 * verdict.step();
    position.set_epoch(end / 100);
    if (end % 100 != 0) {
      position.add_used()->set_begin(0);
      position.mutable_used(0)->set_end(end % 100);
    }
    return position;
  }

  FileWork TheWork() {
    auto work = job_.core.TakeFileWork();
    EXPECT_EQ(work.size(), 1u);
    return work.empty() ? FileWork() : work[0];
  }

  const WatchReply& Told(CoordinatorFixture::Process& process) {
    process.seen_revision = 0;
    job_.Watch(process);
    return **process.watched;
  }

  // From the folder to the commit; what is left is the removal of old ones.
  void Write(uint64_t step) {
    FileWork work = TheWork();
    ASSERT_EQ(work.kind, FileWork::Kind::kCreateFolder);
    job_.Done(work);
    for (auto* shard : job_.shards) {
      EXPECT_EQ(Told(*shard).checkpoint().step(), step);
      ASSERT_TRUE(job_.ReportFile(job_.FileOf(*shard, step)).ok());
    }
    work = TheWork();
    ASSERT_EQ(work.kind, FileWork::Kind::kCommit);
    EXPECT_EQ(work.manifest.step(), step);
    job_.Done(work);
  }

  CoordinatorFixture job_;
  CheckpointMark mark_;
};

TEST_F(CoordinatorCheckpointTest, OfTheMarkedVersionWhileTrainingGoesOn) {
  job_.Train();
  Decide();
  EXPECT_FALSE(job_.core.has_file_work());
  Decide(/*mark=*/true);
  Decide();
  Decide();
  EXPECT_EQ(Told(*job_.shards[1]).checkpoint_ended(), 0u);
  const FileWork create = TheWork();
  EXPECT_EQ(create.folder, "/job/checkpoints/step-00000002");
  EXPECT_FALSE(Told(*job_.shards[1]).has_checkpoint());
  job_.Done(create);
  EXPECT_EQ(Told(*job_.shards[1]).checkpoint().step(), 2u);
  ASSERT_TRUE(job_.ReportFile(job_.FileOf(*job_.shards[1], 2)).ok());
  Decide();
  ASSERT_TRUE(job_.ReportFile(job_.FileOf(*job_.shards[0], 2)).ok());
  const FileWork commit = TheWork();
  EXPECT_EQ(commit.kind, FileWork::Kind::kCommit);
  EXPECT_EQ(commit.manifest.step(), 2u);
  EXPECT_EQ(commit.manifest.data_position().used(0).end(), 40u) << "of the version, not of now";
  job_.Done(commit);
  EXPECT_EQ(job_.core.phase(), TRAINING);
  EXPECT_EQ(Told(*job_.shards[0]).checkpoint_ended(), 2u);
  EXPECT_FALSE(Told(*job_.shards[0]).has_checkpoint());
  EXPECT_EQ(job_.Status().checkpoint_step(), 2u);
  const FileWork remove = TheWork();
  EXPECT_EQ(remove.kind, FileWork::Kind::kRemoveOld);
  EXPECT_EQ(remove.keep.last, 3u);
  job_.Done(remove, absl::UnavailableError("somebody's file"));
  EXPECT_EQ(job_.core.phase(), TRAINING);
  // The same mark, said again with each verdict, is no new one.
  Decide();
  EXPECT_FALSE(job_.core.has_file_work());
  EXPECT_TRUE(job_.ReportFile(job_.FileOf(*job_.shards[1], 2)).ok()) << "repeated";
}

TEST_F(CoordinatorCheckpointTest, OneThatFailsEndsNothing) {
  job_.Train();
  Decide(/*mark=*/true);
  Write(1);
  (void)job_.core.TakeFileWork();
  for (const bool at_folder : {true, false}) {
    Decide(/*mark=*/true);
    const uint64_t step = mark_.version();
    const FileWork create = TheWork();
    if (at_folder) {
      job_.Done(create, absl::ResourceExhaustedError("no space left"));
    } else {
      job_.Done(create);
      auto report = job_.FileOf(*job_.shards[1], step);
      report.set_error("no space left");
      ASSERT_TRUE(job_.ReportFile(report).ok());
      ASSERT_TRUE(job_.ReportFile(report).ok()) << "said again";
      // The other one had written his.
      ASSERT_TRUE(job_.ReportFile(job_.FileOf(*job_.shards[0], step)).ok());
    }
    EXPECT_EQ(job_.core.phase(), TRAINING);
    EXPECT_EQ(TheWork().kind, FileWork::Kind::kAbandon);
    EXPECT_EQ(Told(*job_.shards[0]).checkpoint_ended(), step);
    EXPECT_FALSE(Told(*job_.shards[0]).has_checkpoint());
    EXPECT_EQ(job_.Status().checkpoint_step(), 1u);
    EXPECT_NE(job_.Status().checkpoint_error().find("no space left"), std::string::npos);
  }
  EXPECT_EQ(job_.Status().checkpoints_failed(), 2u);
  Decide(/*mark=*/true);
  Write(mark_.version());
  EXPECT_EQ(job_.Status().checkpoint_step(), mark_.version());
}

TEST_F(CoordinatorCheckpointTest, AShardThatDoesNotWriteIsNotWaitedForForEver) {
  job_.Train();
  Decide(/*mark=*/true);
  job_.Done(TheWork());
  job_.Pass(absl::Seconds(59));
  EXPECT_EQ(Told(*job_.shards[0]).checkpoint_ended(), 0u);
  ASSERT_TRUE(job_.ReportFile(job_.FileOf(*job_.shards[0], 1)).ok());
  job_.Pass(absl::Seconds(59));
  EXPECT_EQ(Told(*job_.shards[0]).checkpoint_ended(), 0u) << "somebody has written meanwhile";
  job_.Pass(absl::Seconds(2));
  EXPECT_EQ(Told(*job_.shards[0]).checkpoint_ended(), 1u);
  EXPECT_NE(job_.Status().checkpoint_error().find("shard 1"), std::string::npos)
      << job_.Status().checkpoint_error();
  EXPECT_EQ(job_.core.phase(), TRAINING);
}

TEST_F(CoordinatorCheckpointTest, AShardThatWritesIsWaitedForHoweverLongThatTakes) {
  job_.Train();
  Decide(/*mark=*/true);
  job_.Done(TheWork());
  ASSERT_TRUE(job_.ReportFile(job_.FileOf(*job_.shards[0], 1)).ok());
  HeartbeatRequest writes;
  for (int i = 0; i < 10; ++i) {
    job_.Pass(absl::Seconds(30));
    writes.set_progress(writes.progress() + 1);
    writes.set_disk_bytes(writes.disk_bytes() + 1000);
    ASSERT_TRUE(job_.Heartbeat(*job_.shards[1], writes).ok());
  }
  EXPECT_EQ(Told(*job_.shards[0]).checkpoint_ended(), 0u);
  job_.Pass(absl::Seconds(61));
  EXPECT_EQ(Told(*job_.shards[0]).checkpoint_ended(), 1u) << "it gets on, but with training only";
}

TEST_F(CoordinatorCheckpointTest, AFolderThatNoDiskMakesIsNotWaitedForForEver) {
  job_.Train();
  Decide(/*mark=*/true);
  const FileWork hangs = TheWork();
  job_.Pass(absl::Seconds(59));
  EXPECT_EQ(Told(*job_.shards[0]).checkpoint_ended(), 0u);
  job_.Pass(absl::Seconds(2));
  EXPECT_EQ(Told(*job_.shards[0]).checkpoint_ended(), 1u);
  EXPECT_THAT(job_.Status().checkpoint_error(),
              testing::HasSubstr("waits for a disk to make /job/checkpoints/step-00000001"));
  for (uint64_t failed = 2; failed < 5; ++failed) {
    Decide(/*mark=*/true);
    job_.Pass(absl::Seconds(61));
    EXPECT_EQ(job_.Status().checkpoints_failed(), failed);
  }
  EXPECT_EQ(job_.core.phase(), TRAINING);
  // The disk answers again. Of those that had not begun nothing is left to do.
  Decide(/*mark=*/true);
  job_.Done(hangs);
  EXPECT_FALSE(Told(*job_.shards[0]).has_checkpoint());
  const auto work = job_.core.TakeFileWork();
  ASSERT_EQ(work.size(), 2u);
  EXPECT_EQ(work[0].kind, FileWork::Kind::kAbandon);
  EXPECT_EQ(work[0].folder, hangs.folder);
  job_.Done(work[1]);
  EXPECT_EQ(Told(*job_.shards[0]).checkpoint().step(), mark_.version());
}

// As the job writes its manifest, and the disk does not answer for so long.
class CheckpointWhoseCommitHangsTest : public CoordinatorCheckpointTest {
 protected:
  void HangAt(uint64_t step) {
    job_.Train();
    while (job_.core.progress().step() < step) {
      Decide(/*mark=*/job_.core.progress().step() + 1 == step);
    }
    job_.Done(TheWork());
    for (auto* shard : job_.shards) ASSERT_TRUE(job_.ReportFile(job_.FileOf(*shard, step)).ok());
    commit_ = TheWork();
    ASSERT_EQ(commit_.kind, FileWork::Kind::kCommit);
    job_.Pass(absl::Seconds(59));
    ASSERT_EQ(job_.Status().checkpoints_failed(), 0u);
    job_.Pass(absl::Seconds(2));
    ASSERT_EQ(job_.Status().checkpoints_failed(), 1u);
    EXPECT_THAT(job_.Status().checkpoint_error(),
                testing::HasSubstr("waits for a disk to write the manifest of"));
  }

  FileWork commit_;
};

TEST_F(CheckpointWhoseCommitHangsTest, ItCountsOnceWhereItComesThroughAfterAll) {
  HangAt(1);
  Decide(/*mark=*/true);
  EXPECT_EQ(job_.Status().checkpoint_step(), 0u);
  job_.Done(commit_);
  EXPECT_EQ(job_.Status().checkpoint_step(), 1u);
  EXPECT_EQ(job_.core.checkpoint().written(), 1u);
  EXPECT_EQ(job_.core.checkpoint().duration(), absl::Seconds(61));
  const auto work = job_.core.TakeFileWork();
  ASSERT_EQ(work.size(), 3u) << "what is left of it, the next one, and the removal of old ones";
  EXPECT_EQ(work[1].kind, FileWork::Kind::kCreateFolder);
  EXPECT_EQ(work[2].keep.in_use.count(commit_.folder), 1u);
  job_.Done(work[1]);
  EXPECT_EQ(Told(*job_.shards[0]).checkpoint().step(), 2u);
}

TEST_F(CheckpointWhoseCommitHangsTest, TheNextOneOfTheSameVersionIsNotBegunThen) {
  HangAt(10);
  for (auto* worker : job_.workers) ASSERT_TRUE(job_.Finish(*worker, 10).ok());
  EXPECT_EQ(job_.core.phase(), SAVING);
  job_.Done(commit_);
  EXPECT_EQ(job_.core.phase(), FINISHED);
  EXPECT_EQ(job_.core.checkpoint().whole_folder(), commit_.folder);
  for (const FileWork& work : job_.core.TakeFileWork()) {
    EXPECT_NE(work.kind, FileWork::Kind::kCreateFolder);
  }
}

TEST_F(CheckpointWhoseCommitHangsTest, OneThatFailsAfterAllChangesNothing) {
  HangAt(1);
  job_.Done(commit_, absl::UnavailableError("the disk"));
  EXPECT_EQ(job_.Status().checkpoint_step(), 0u);
  EXPECT_EQ(job_.Status().checkpoints_failed(), 1u);
}

// Its manifest was there, and `latest` could not be made to name it at first.
TEST_F(CoordinatorCheckpointTest, OneWhoseCommitSeemedToFailCountsWhereItIsWhole) {
  job_.Train();
  Decide(/*mark=*/true);
  job_.Done(TheWork());
  for (auto* shard : job_.shards) ASSERT_TRUE(job_.ReportFile(job_.FileOf(*shard, 1)).ok());
  job_.Done(TheWork(), absl::ResourceExhaustedError("no space left"));
  EXPECT_EQ(job_.Status().checkpoints_failed(), 1u);
  EXPECT_EQ(job_.Status().checkpoint_step(), 0u);
  FileWork abandon = TheWork();
  ASSERT_EQ(abandon.kind, FileWork::Kind::kAbandon);
  ASSERT_EQ(abandon.manifest.step(), 1u);
  abandon.committed = true;
  const uint64_t durable = job_.core.durable_revision();
  job_.Done(abandon);
  EXPECT_GT(job_.core.durable_revision(), durable);
  EXPECT_EQ(job_.Status().checkpoint_step(), 1u);
  EXPECT_EQ(TheWork().kind, FileWork::Kind::kRemoveOld);
  job_.Done(abandon);
  EXPECT_EQ(job_.core.checkpoint().written(), 1u) << "once";
}

TEST_F(CoordinatorCheckpointTest, TheEndWaitsForTheOneThatIsBeingWritten) {
  job_.Train();
  for (int step = 1; step < 10; ++step) Decide(/*mark=*/step == 8);
  job_.Done(TheWork());
  Decide();
  for (auto* worker : job_.workers) ASSERT_TRUE(job_.Finish(*worker, 10).ok());
  EXPECT_EQ(job_.core.phase(), SAVING);
  EXPECT_FALSE(job_.core.has_file_work());
  for (auto* shard : job_.shards) ASSERT_TRUE(job_.ReportFile(job_.FileOf(*shard, 8)).ok());
  job_.Done(TheWork());
  EXPECT_EQ(job_.core.phase(), SAVING);
  auto work = job_.core.TakeFileWork();
  ASSERT_EQ(work.size(), 2u);
  EXPECT_EQ(work[0].kind, FileWork::Kind::kRemoveOld);
  EXPECT_EQ(work[1].folder, "/job/checkpoints/step-00000010");
  job_.Done(work[0]);
  job_.Done(work[1]);
  for (auto* shard : job_.shards) ASSERT_TRUE(job_.ReportFile(job_.FileOf(*shard, 10)).ok());
  job_.Done(TheWork());
  EXPECT_EQ(job_.core.phase(), FINISHED);
  EXPECT_EQ(job_.core.checkpoint().whole_step(), 10u);
}

TEST_F(CoordinatorCheckpointTest, WhenThatOneFailsTheLastOneIsWritten) {
  job_.Train();
  for (int step = 1; step <= 10; ++step) Decide(/*mark=*/step == 8);
  job_.Done(TheWork());
  for (auto* worker : job_.workers) ASSERT_TRUE(job_.Finish(*worker, 10).ok());
  auto report = job_.FileOf(*job_.shards[1], 8);
  report.set_error("no space left");
  ASSERT_TRUE(job_.ReportFile(report).ok());
  EXPECT_EQ(job_.core.phase(), SAVING);
  auto work = job_.core.TakeFileWork();
  ASSERT_EQ(work.size(), 2u);
  EXPECT_EQ(work[0].kind, FileWork::Kind::kAbandon);
  EXPECT_EQ(work[1].folder, "/job/checkpoints/step-00000010");
  // Of the last one a failure is the job's: what it has trained would be lost.
  job_.Done(work[1]);
  report = job_.FileOf(*job_.shards[1], 10);
  report.set_error("no space left");
  ASSERT_TRUE(job_.ReportFile(report).ok());
  EXPECT_EQ(job_.core.phase(), FAILED);
}

TEST_F(CoordinatorCheckpointTest, WhoAsksGetsOneOfALaterVersion) {
  Replies replies;
  EXPECT_EQ(job_.core.AskForCheckpoint({}, job_.now, replies).status().code(),
            StatusCode::kFailedPrecondition)
      << "nobody trains yet";
  job_.Train();
  Decide();
  AskForCheckpointRequest request;
  request.set_job("another");
  EXPECT_EQ(job_.core.AskForCheckpoint(request, job_.now, replies).status().code(),
            StatusCode::kNotFound);
  EXPECT_EQ(Told(*job_.shards[0]).checkpoints_asked(), 0u);
  job_.Watch(*job_.shards[0]);
  ASSERT_FALSE(job_.shards[0]->watched.has_value());
  absl::StatusOr<AskForCheckpointReply> reply;
  {
    Replies answers;
    reply = job_.core.AskForCheckpoint({}, job_.now, answers);
  }
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->step(), 1u);
  ASSERT_TRUE(job_.shards[0]->watched.has_value()) << "the leader is told at once";
  EXPECT_EQ((*job_.shards[0]->watched)->checkpoints_asked(), 1u);
}

TEST_F(CoordinatorCheckpointTest, ANewCoordinatorGoesOnWithIt) {
  job_.Train();
  Decide(/*mark=*/true);
  job_.Done(TheWork());
  ASSERT_TRUE(job_.ReportFile(job_.FileOf(*job_.shards[0], 1)).ok());
  CoordinatorCore next(job_.options_);
  ASSERT_TRUE(next.Restore(job_.core.DurableState()).ok());
  next.Open(2, "127.0.0.1:4001", job_.now);
  EXPECT_EQ(next.checkpoint().order()->step(), 1u);
  EXPECT_TRUE(next.checkpoint().reported(0));
  EXPECT_FALSE(next.checkpoint().reported(1));
}

class CheckpointByTimeTest : public CoordinatorCheckpointTest {
 protected:
  CheckpointByTimeTest() : CoordinatorCheckpointTest(absl::Seconds(30)) {}
};

TEST_F(CheckpointByTimeTest, SoLongAfterTheLastOneBegan) {
  job_.Gather();
  job_.Pass(absl::Seconds(40));
  EXPECT_EQ(Told(*job_.shards[0]).checkpoints_asked(), 0u) << "nobody trains yet";
  for (auto* shard : job_.shards) ASSERT_TRUE(job_.Ready(*shard).ok());
  job_.Pass(absl::Seconds(29));
  EXPECT_EQ(Told(*job_.shards[0]).checkpoints_asked(), 0u);
  job_.Pass(absl::Seconds(2));
  EXPECT_EQ(Told(*job_.shards[0]).checkpoints_asked(), 1u);
  Decide(/*mark=*/true);
  job_.Pass(absl::Seconds(20));
  Write(1);
  EXPECT_EQ(Told(*job_.shards[0]).checkpoints_asked(), 1u);
  job_.Pass(absl::Seconds(9));
  EXPECT_EQ(Told(*job_.shards[0]).checkpoints_asked(), 1u);
  job_.Pass(absl::Seconds(2));
  EXPECT_EQ(Told(*job_.shards[0]).checkpoints_asked(), 2u);
}

}  // namespace
}  // namespace parley
