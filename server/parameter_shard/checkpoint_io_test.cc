#include "server/parameter_shard/checkpoint_io.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/names.h"
#include "common/memory_file_system.h"
#include "server/parameter_shard/checkpoint_fixture.h"

namespace parley::testing {
namespace {

JobConfig AdamJob() {
  JobConfig job = MeanJob();
  Adam* adam = job.mutable_optimizer()->mutable_adam();
  adam->set_rate(0.01);
  adam->set_beta1(0.9);
  adam->set_beta2(0.999);
  adam->set_epsilon(1e-8);
  job.mutable_consistency()->mutable_sync()->set_deterministic(true);
  return job;
}

ViewOptions Options(uint32_t shards, uint64_t placement) {
  return {.tensors = {{"w", 2 * kBlockElements + 100},
                      {"b", 10},
                      {"n", 1, true, I64},
                      {"d", 6, false, F64}},
          .shards = shards,
          .placement_seed = placement};
}

std::string AllBytes(ShardCluster& cluster, uint64_t version) {
  std::string bytes;
  for (const Slice& slice : cluster.view().slices()) {
    auto pulled = cluster.Pull(0, slice.id(), version);
    const PinnedBuffer& values = (**pulled)->slices[0].values;
    bytes.append(reinterpret_cast<const char*>(values->data()), values->size());
  }
  return bytes;
}

class CheckpointIoTest : public ::testing::Test {
 protected:
  CheckpointIoTest() : files_(PosixFileSystem()) {
    folder_ = absl::StrCat(::testing::TempDir(), "/",
                           ::testing::UnitTest::GetInstance()->current_test_info()->name(), "/",
                           StepFolderName(5));
    EXPECT_EQ(files_->CreateDirectories(folder_), absl::OkStatus());
  }

  void Write(ShardCluster& cluster, uint64_t version) {
    Manifest manifest;
    manifest.set_job_name("test");
    manifest.set_step(version);
    *manifest.mutable_job() = AdamJob();
    *manifest.mutable_tensors() = cluster.view().tensors();
    for (uint32_t i = 0; i < cluster.size(); ++i) {
      auto slices = cluster.shard(i).Snapshot(version);
      ASSERT_EQ(slices.status(), absl::OkStatus());
      auto file = WriteCheckpointFile(*files_, folder_, *cluster.shard(i).routing(), *slices);
      ASSERT_EQ(file.status(), absl::OkStatus());
      EXPECT_EQ(file->name(), absl::StrCat("shard-", i, ".safetensors"));
      *manifest.add_files() = *file;
      for (const auto& [name, steps] : OptimizerSteps(*cluster.shard(i).routing(), *slices,
                                                      /*of_each_slice=*/true)) {
        (*manifest.mutable_optimizer_steps())[name] = steps;
      }
    }
    EXPECT_EQ(manifest.optimizer_steps().at("w"), version);
    EXPECT_EQ(manifest.optimizer_steps().count("n"), 0u);
    change_(manifest);
    ASSERT_EQ(CommitCheckpoint(*files_, folder_, manifest), absl::OkStatus());
  }

  absl::Status Load(ShardCluster& cluster) {
    for (uint32_t i = 0; i < cluster.size(); ++i) {
      Shard& shard = cluster.shard(i);
      absl::Status status = LoadCheckpoint(
          *files_, folder_, *shard.routing(),
          [&](uint32_t slice, const SliceStart& start) {
            Replies replies;
            return shard.StartSlice(slice, start, cluster.now(), replies);
          },
          [&](uint64_t bytes) { checked_ += bytes; });
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  std::unique_ptr<FileSystem> files_;
  std::string folder_;
  uint64_t checked_ = 0;  // bytes that Load has read besides, for their sums
  std::function<void(Manifest&)> change_ = [](Manifest&) {};  // before it is written
};

TEST_F(CheckpointIoTest, TrainingGoesOnBitwiseWithAnotherNumberOfShards) {
  ShardCluster whole(AdamJob(), MakeView(Options(1, 1)));
  Train(whole, 1, 10);
  const std::string expected = AllBytes(whole, 10);

  ShardCluster first(AdamJob(), MakeView(Options(2, 5)));
  Train(first, 1, 5);
  Write(first, 5);

  ClusterView view = MakeView(Options(3, 9));
  view.set_start_from(folder_);
  view.set_start_version(5);
  ShardCluster second(AdamJob(), view, /*start=*/false);
  ASSERT_EQ(Load(second), absl::OkStatus());
  for (uint32_t i = 0; i < second.size(); ++i) EXPECT_TRUE(second.shard(i).ready());
  EXPECT_GT(checked_, 0u) << "the others' parts of the blocks";
  Train(second, 6, 10);
  EXPECT_EQ(AllBytes(second, 10), expected);
}

TEST_F(CheckpointIoTest, WhoIsToldToStopReadsNoFurther) {
  ShardCluster first(AdamJob(), MakeView(Options(2, 5)));
  Train(first, 1, 5);
  Write(first, 5);
  ClusterView view = MakeView(Options(3, 9));  // its parts end within blocks
  view.set_start_from(folder_);
  view.set_start_version(5);
  const auto routing = Routing::Make(view, 0);
  ASSERT_EQ(routing.status(), absl::OkStatus());
  const size_t slices = (*routing)->own_slices().size();
  // After so many slices, or so many reads for the sums.
  for (const bool by_sums : {false, true}) {
    std::atomic<bool> stop = false;
    size_t started = 0;
    size_t checks = 0;
    const absl::Status status = LoadCheckpoint(
        *files_, folder_, **routing,
        [&](uint32_t, const SliceStart&) {
          ++started;
          if (!by_sums) stop = true;
          return absl::OkStatus();
        },
        [&](uint64_t) {
          ++checks;
          stop = true;
        },
        [&] { return stop.load(); });
    EXPECT_TRUE(absl::IsCancelled(status)) << status;
    EXPECT_EQ(started, by_sums ? slices - 1 : 1) << "the last one comes with the sums";
    EXPECT_EQ(checks, by_sums ? 1u : 0u);
  }
}

TEST_F(CheckpointIoTest, WhoIsToldToStopWritesNoFurther) {
  ShardCluster cluster(AdamJob(), MakeView(Options(1, 3)));
  Train(cluster, 1, 5);
  const auto slices = cluster.shard(0).Snapshot(5);
  ASSERT_EQ(slices.status(), absl::OkStatus());
  int told = 0;
  const auto file = WriteCheckpointFile(*files_, folder_, *cluster.shard(0).routing(), *slices,
                                        [&](uint64_t) { return ++told < 2; });
  EXPECT_TRUE(absl::IsCancelled(file.status())) << file.status();
  EXPECT_EQ(told, 2);
  EXPECT_EQ(files_->List(folder_)->size(), 0u) << "nor leaves what it has written";
}

// In bounded and async one of them can have missed an update.
TEST_F(CheckpointIoTest, EachSliceOfATensorHasItsOwnStepCount) {
  ShardCluster first(AdamJob(), MakeView(Options(1, 3)));
  Train(first, 1, 5);
  std::map<uint64_t, uint64_t> counts;  // of w, by the beginning of its slice
  change_ = [&](Manifest& manifest) {
    for (const Slice& slice : first.view().slices()) {
      if (slice.tensor() != 0) continue;
      counts[slice.begin()] = 5 - counts.size();
      manifest.mutable_optimizer_steps()->at(OptimizerStepsKey("w", slice.begin())) =
          counts[slice.begin()];
    }
  };
  Write(first, 5);
  ASSERT_GT(counts.size(), 1u);
  std::map<uint64_t, uint64_t> loaded;
  ClusterView view = first.view();
  view.set_start_version(5);
  const auto routing = Routing::Make(view, 0);
  ASSERT_EQ(routing.status(), absl::OkStatus());
  ASSERT_EQ(LoadCheckpoint(*files_, folder_, **routing,
                           [&](uint32_t id, const SliceStart& start) {
                             const Slice& slice = view.slices(static_cast<int>(id));
                             if (slice.tensor() == 0) loaded[slice.begin()] = start.optimizer_steps;
                             return absl::OkStatus();
                           }),
            absl::OkStatus());
  EXPECT_EQ(loaded, counts);
}

TEST_F(CheckpointIoTest, ACheckpointOfAnotherModelOrStepIsRefused) {
  ShardCluster first(AdamJob(), MakeView(Options(1, 1)));
  Train(first, 1, 1);
  Write(first, 1);
  ClusterView view = MakeView({.tensors = {{"w", 3}}});
  view.set_start_version(1);
  ShardCluster other_model(AdamJob(), view, /*start=*/false);
  EXPECT_TRUE(absl::IsInvalidArgument(Load(other_model)));
  view = MakeView(Options(1, 1));
  view.set_start_version(2);
  ShardCluster other_step(AdamJob(), view, /*start=*/false);
  EXPECT_TRUE(absl::IsInvalidArgument(Load(other_step)));
}

TEST_F(CheckpointIoTest, AFlippedByteIsFoundWhileAShardLoadsAndTheShardDoesNotBecomeReady) {
  ShardCluster first(AdamJob(), MakeView(Options(2, 5)));
  Train(first, 1, 5);
  Write(first, 5);
  const std::string path = folder_ + "/shard-1.safetensors";
  const auto good = ReadWholeFile(*files_, path);
  ASSERT_EQ(good.status(), absl::OkStatus());
  // In the tensors: the header has its own checks. Of as many shards and of one.
  for (const uint32_t shards : {2, 1}) {
    ClusterView view = MakeView(Options(shards, 5));
    view.set_start_from(folder_);
    view.set_start_version(5);
    for (const size_t from_end : {size_t{1}, good->size() / 3}) {
      std::string damaged = *good;
      damaged[damaged.size() - from_end] ^= 0x10;
      ASSERT_EQ(WriteFileAtomically(*files_, path, damaged), absl::OkStatus());
      ShardCluster second(AdamJob(), view, /*start=*/false);
      const absl::Status status = Load(second);
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
      for (const char* word : {"shard-1.safetensors", "CRC-32", "was written"}) {
        EXPECT_NE(status.message().find(word), absl::string_view::npos) << word << ": " << status;
      }
      EXPECT_FALSE(second.shard(shards - 1).ready());
    }
    ASSERT_EQ(WriteFileAtomically(*files_, path, *good), absl::OkStatus());
    ShardCluster third(AdamJob(), view, /*start=*/false);
    EXPECT_EQ(Load(third), absl::OkStatus());
    EXPECT_TRUE(third.shard(shards - 1).ready());
  }
}

TEST_F(CheckpointIoTest, AShardThatIsPastTheVersionSaysSo) {
  ShardCluster cluster(AdamJob(), MakeView(Options(1, 1)));
  Train(cluster, 1, 2);
  EXPECT_TRUE(absl::IsAborted(cluster.shard(0).Snapshot(1).status()));
  EXPECT_TRUE(absl::IsUnavailable(cluster.shard(0).Snapshot(3).status()));
}

TEST_F(CheckpointIoTest, ASnapshotStaysAsItWasWhileTrainingGoesOn) {
  ShardCluster cluster(AdamJob(), MakeView(Options(1, 1)));
  Train(cluster, 1, 3);
  auto slices = cluster.shard(0).Snapshot(3);
  ASSERT_TRUE(slices.ok());
  const auto bytes = [](const PinnedBuffer& buffer) {
    return std::string(reinterpret_cast<const char*>(buffer->data()), buffer->size());
  };
  const std::string values = bytes((*slices)[0].values);
  const std::string state = bytes((*slices)[0].state_buffer);
  Train(cluster, 4, 5);
  EXPECT_EQ(bytes((*slices)[0].values), values);
  EXPECT_EQ(bytes((*slices)[0].state_buffer), state);
}

TEST(CheckpointIoCrashTest, AFileThatIsReportedOutlivesACrashOfItsMachine) {
  ShardCluster cluster(SummingJob(), MakeView({}));
  const auto slices = cluster.shard(0).Snapshot(0);
  ASSERT_TRUE(slices.ok());
  for (uint64_t seed = 0; seed < 20; ++seed) {  // a crash loses some of what is not synced
    MemoryFileSystem files;
    ASSERT_EQ(files.CreateDirectories("/c/step"), absl::OkStatus());
    for (const char* folder : {"/", "/c"}) {
      ASSERT_EQ(files.SyncDirectory(folder), absl::OkStatus());
    }
    const auto file = WriteCheckpointFile(files, "/c/step", *cluster.shard(0).routing(), *slices);
    ASSERT_TRUE(file.ok()) << file.status();
    files.Restart(seed);
    const auto content = ReadWholeFile(files, "/c/step/" + file->name());
    ASSERT_TRUE(content.ok()) << content.status();
    EXPECT_EQ(content->size(), file->bytes());
  }
}

// The coordinator removes it only when it has recorded that the checkpoint was given up, for which
// the disk may have no room until then.
TEST(CheckpointIoFaultTest, WhatCannotBeWrittenWholeIsRemovedAtOnce) {
  ShardCluster cluster(SummingJob(), MakeView({}));
  const auto slices = cluster.shard(0).Snapshot(0);
  ASSERT_TRUE(slices.ok());
  for (const auto fault : {MemoryFileSystem::Fault::kFails, MemoryFileSystem::Fault::kLostReply}) {
    uint64_t failed = 0;
    while (true) {
      MemoryFileSystem files;
      ASSERT_EQ(files.CreateDirectories("/c/step"), absl::OkStatus());
      files.SetFault(files.operations() + failed + 1, fault);
      const auto file = WriteCheckpointFile(files, "/c/step", *cluster.shard(0).routing(), *slices);
      if (file.ok()) break;  // it takes fewer operations
      ++failed;
      EXPECT_EQ(files.List("/c/step")->size(), 0u) << "operation " << failed;
    }
    EXPECT_GE(failed, 5u) << "create, header, tensors, sync, the folder's sync";
  }
}

}  // namespace
}  // namespace parley::testing
