#ifndef PARLEY_SERVER_COORDINATOR_RECOVERY_FIXTURE_H_
#define PARLEY_SERVER_COORDINATOR_RECOVERY_FIXTURE_H_

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "server/coordinator/coordinator_fixture.h"

namespace parley {

// A job of two workers and two shards that has written a checkpoint. Tests only.
class CoordinatorRecoveryTest : public testing::Test {
 protected:
  explicit CoordinatorRecoveryTest(const std::function<void(CoordinatorCore::Options&)>& change =
                                       [](CoordinatorCore::Options&) {})
      : job_([&] {
          auto options = CoordinatorFixture::DefaultOptions(2, 2);
          options.job.set_max_restarts(2);
          change(options);
          return options;
        }()) {}

  // The leader decides a step and, if told so, marks its version.
  void Decide(bool mark = false) {
    const Verdict verdict = job_.NextVerdict();
    JobProgress progress;
    progress.set_step(verdict.step());
    progress.mutable_position()->set_epoch(20 * verdict.step() / 100);
    if (const uint64_t end = 20 * verdict.step() % 100; end != 0) {
      progress.mutable_position()->add_used()->set_end(end);
    }
    if (mark) {
      mark_.set_version(verdict.step());
      *mark_.mutable_position() = progress.position();
    }
    if (mark_.version() != 0) *progress.mutable_mark() = mark_;
    ASSERT_TRUE(job_.Report(*job_.shards[0], {verdict}, progress).ok());
  }

  FileWork TheWork() {
    const auto work = job_.core.TakeFileWork();
    EXPECT_EQ(work.size(), 1u);
    return work.empty() ? FileWork() : work[0];
  }

  ReportCheckpointFileRequest FileOf(const CoordinatorFixture::Process& shard, uint64_t step) {
    auto file = job_.FileOf(shard, step);
    if (const uint64_t epoch = job_.core.job_epoch(); epoch > 1) {
      file.mutable_file()->set_name("shard-" + std::to_string(shard.ordinal) + ".e" +
                                    std::to_string(epoch) + ".safetensors");
    }
    return file;
  }

  // Until the manifest is to be written.
  FileWork WriteFiles(uint64_t step) {
    job_.Done(TheWork());
    for (auto* shard : job_.shards) {
      const absl::Status reported = job_.ReportFile(FileOf(*shard, step));
      EXPECT_TRUE(reported.ok()) << reported;
    }
    return TheWork();
  }

  void Write(uint64_t step) {
    job_.Done(WriteFiles(step));
    EXPECT_EQ(job_.core.checkpoint().whole_step(), step);
    (void)job_.core.TakeFileWork();  // the removal of old ones
  }

  // Two decided, a checkpoint of them, and two more.
  void TrainWithACheckpoint() {
    job_.Train();
    Decide();
    Decide(/*mark=*/true);
    Write(2);
    Decide();
    Decide();
  }

  void LoseShard(uint32_t ordinal) {
    job_.shards[ordinal]->alive = false;
    job_.Pass(absl::Seconds(11));
  }

  void Replace(uint32_t ordinal) {
    job_.shards[ordinal] = &job_.StartAndJoin(SHARD);
    EXPECT_EQ(job_.shards[ordinal]->ordinal, ordinal);
  }

  void BecomeReady(uint64_t version) {
    job_.LearnView();
    for (auto* shard : job_.shards) {
      const absl::Status ready = job_.Ready(*shard, version);
      ASSERT_TRUE(ready.ok()) << ready;
    }
    ASSERT_EQ(job_.core.phase(), TRAINING);
    mark_.Clear();
  }

  CoordinatorFixture job_;
  CheckpointMark mark_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_RECOVERY_FIXTURE_H_
