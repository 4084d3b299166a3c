// Whatever operation a crash or a fault of the disk comes at while a checkpoint is written, by the
// shards' code and the coordinator's: afterwards there is the checkpoint before it or this one,
// whole, and the next one can be written.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/names.h"
#include "common/checkpoint/verify.h"
#include "common/memory_file_system.h"
#include "server/coordinator/checkpoint_files.h"
#include "server/coordinator/checkpoint_plan.h"
#include "server/parameter_shard/checkpoint_fixture.h"
#include "server/parameter_shard/checkpoint_io.h"

namespace parley::testing {
namespace {

using Fault = MemoryFileSystem::Fault;

constexpr char kCheckpoints[] = "/job/checkpoints";
constexpr uint32_t kShards = 3;
// Ways to lose what was not synced; the sanitizer of threads takes many times as long.
#if defined(__SANITIZE_THREAD__)
constexpr uint64_t kSeeds = 3;
#else
constexpr uint64_t kSeeds = 12;
#endif
constexpr uint64_t kSteps = 3;  // a checkpoint after each

// What the shards hold after each step, made once for all tests.
struct Training {
  Training() {
    for (uint64_t step = 1; step <= kSteps; ++step) {
      Train(cluster, step, step);
      for (uint32_t i = 0; i < kShards; ++i) {
        auto slices = cluster.shard(i).Snapshot(step);
        EXPECT_EQ(slices.status(), absl::OkStatus());
        EXPECT_FALSE(slices->empty());
        const LoadedSlices loaded = AsLoaded(*slices);
        written[step].insert(loaded.begin(), loaded.end());
        snapshots[step].push_back(*std::move(slices));
      }
    }
  }

  ShardCluster cluster{MomentumJob(), MakeView(CutModel(kShards, 0))};
  std::map<uint64_t, std::vector<std::vector<SliceSnapshot>>> snapshots;  // by step and shard
  std::map<uint64_t, LoadedSlices> written;                               // by step
};

Training& Trained() {
  static Training training;
  return training;
}

class CheckpointCrashTest : public ::testing::Test {
 protected:
  static void MakeJobDirectory(FileSystem& files) {
    ASSERT_EQ(files.CreateDirectories("/job"), absl::OkStatus());
    ASSERT_EQ(files.SyncDirectory("/"), absl::OkStatus());
  }

  // As coordinator and shards do it between them. `plan` shows afterwards how far they came.
  static absl::Status Write(FileSystem& files, uint64_t step, CheckpointPlan& plan) {
    Manifest manifest;
    manifest.set_job_name("crash");
    manifest.set_step(step);
    *manifest.mutable_tensors() = Trained().cluster.view().tensors();
    FileWork folder = plan.Begin(kCheckpoints, kShards, manifest, absl::UnixEpoch());
    if (absl::Status status = Perform(files, folder); !status.ok()) return status;
    plan.FolderIsThere();
    for (uint32_t i = 0; i < kShards; ++i) {
      const Routing& routing = *Trained().cluster.shard(i).routing();
      const auto& slices = Trained().snapshots[step][i];
      const auto file = WriteCheckpointFile(files, plan.order()->directory(), routing, slices);
      if (!file.ok()) return file.status();
      ReportCheckpointFileRequest report;
      report.set_step(step);
      *report.mutable_file() = *file;
      for (const auto& [tensor, steps] : OptimizerSteps(routing, slices, /*of_each_slice=*/false)) {
        (*report.mutable_optimizer_steps())[tensor] = steps;
      }
      if (absl::Status status = plan.Add(routing.self(), report); !status.ok()) return status;
    }
    std::optional<FileWork> commit = plan.CommitIfComplete();
    if (!commit.has_value()) return absl::InternalError("the plan is not complete");
    return Perform(files, *commit);
  }
  static absl::Status Write(FileSystem& files, uint64_t step) {
    CheckpointPlan plan;
    return Write(files, step, plan);
  }

  // Whether it is whole by its sums, and two shards load exactly what three have written.
  static void CheckWhole(FileSystem& files, const std::string& path, uint64_t step) {
    ASSERT_EQ(VerifyCheckpoint(files, path), absl::OkStatus());
    const auto start = LoadStart(files, path);
    ASSERT_EQ(start.status(), absl::OkStatus());
    ASSERT_EQ(start->manifest.step(), step);
    ClusterView view = MakeView(CutModel(2, 9));
    view.set_start_version(step);
    LoadedSlices all;
    for (uint32_t shard = 0; shard < 2; ++shard) {
      auto loaded = LoadShard(files, path, view, shard);
      ASSERT_EQ(loaded.status(), absl::OkStatus());
      all.merge(*loaded);
    }
    ASSERT_TRUE(all == Trained().written[step])
        << "other values than were written after step " << step;
  }

  // The step of the checkpoint that a job would start from, after checking all that are there.
  static uint64_t CheckAll(FileSystem& files) {
    const auto names = files.List(kCheckpoints);
    EXPECT_TRUE(names.ok()) << names.status();
    for (const std::string& name : *names) {
      const std::string folder = absl::StrCat(kCheckpoints, "/", name);
      if (!files.Exists(folder + "/manifest.json")) continue;
      uint64_t step = 1;
      while (step < kSteps && StepFolderName(step) != name) ++step;
      CheckWhole(files, folder, step);
    }
    const auto latest = LoadStart(files, kCheckpoints);
    EXPECT_TRUE(latest.ok()) << latest.status();
    if (!latest.ok() || ::testing::Test::HasFailure()) return 0;
    CheckWhole(files, kCheckpoints, latest->manifest.step());
    return latest->manifest.step();
  }

  // A coordinator goes on after something went wrong: with the commit, if all files were there, as
  // its log tells it; else a next checkpoint comes, or the same one again.
  static void GoOn(FileSystem& files, const CheckpointPlan& plan, uint64_t seed) {
    CoordinatorState state;
    plan.Write(state);
    CheckpointPlan resumed;
    auto work = resumed.Read(state.checkpoint(), kShards);
    if (work.has_value() && resumed.stage() == CheckpointPlan::Stage::kCommit) {
      ASSERT_EQ(Perform(files, *work), absl::OkStatus());
      ASSERT_EQ(CheckAll(files), 2U);
    } else if (seed % 2 == 0 && !files.Exists(absl::StrCat(Folder(2), "/manifest.json"))) {
      ASSERT_EQ(Write(files, 2), absl::OkStatus());
      ASSERT_EQ(CheckAll(files), 2U);
    }
    ASSERT_EQ(Write(files, 3), absl::OkStatus());
    ASSERT_EQ(CheckAll(files), 3U);
  }

  static std::string Folder(uint64_t step) {
    return absl::StrCat(kCheckpoints, "/", StepFolderName(step));
  }

  // The operations of the second checkpoint are those with numbers in (first, second].
  static std::pair<uint64_t, uint64_t> OperationsOfTheSecond() {
    MemoryFileSystem files;
    MakeJobDirectory(files);
    EXPECT_EQ(Write(files, 1), absl::OkStatus());
    const uint64_t first = files.operations();
    EXPECT_EQ(Write(files, 2), absl::OkStatus());
    return {first, files.operations()};
  }
};

TEST_F(CheckpointCrashTest, ACrashAtAnyOperationLeavesTheOldCheckpointOrTheNew) {
  const auto [first, second] = OperationsOfTheSecond();
  std::map<uint64_t, int> found;
  for (uint64_t at = first + 1; at <= second + 1; ++at) {
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      SCOPED_TRACE(absl::StrCat("operation ", at - first, " of ", second - first, ", seed ", seed));
      MemoryFileSystem files;
      MakeJobDirectory(files);
      ASSERT_EQ(Write(files, 1), absl::OkStatus());
      files.SetFault(at, Fault::kCrash);
      CheckpointPlan plan;
      const absl::Status written = Write(files, 2, plan);
      ASSERT_EQ(written.ok(), at > second) << written;
      files.Restart(seed);
      const uint64_t step = CheckAll(files);
      ASSERT_TRUE(step == 2 || (step == 1 && !written.ok())) << step;
      ++found[step];
      GoOn(files, plan, seed);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(found[1], 0);
  EXPECT_GT(found[2], static_cast<int>(kSeeds)) << "also where the last step was not told";
  std::printf("%d crashes: the old checkpoint %d times, the new one %d times\n",
              found[1] + found[2], found[1], found[2]);
}

TEST_F(CheckpointCrashTest, AFaultAtAnyOperationLeavesTheOldCheckpointOrTheNew) {
  const auto [first, second] = OperationsOfTheSecond();
  for (const Fault fault : {Fault::kFails, Fault::kLostReply, Fault::kRepeated}) {
    for (uint64_t at = first + 1; at <= second; ++at) {
      for (const bool power_cut : {false, true}) {
        SCOPED_TRACE(absl::StrCat("operation ", at - first, " of ", second - first, ", fault ",
                                  static_cast<int>(fault), power_cut ? ", then a crash" : ""));
        MemoryFileSystem files;
        MakeJobDirectory(files);
        ASSERT_EQ(Write(files, 1), absl::OkStatus());
        files.SetFault(at, fault);
        CheckpointPlan plan;
        const absl::Status written = Write(files, 2, plan);
        if (power_cut) files.Restart(at);
        const uint64_t step = CheckAll(files);
        ASSERT_TRUE(step == 2 || (step == 1 && !written.ok())) << step << ": " << written;
        GoOn(files, plan, at);
        if (HasFailure()) return;
      }
    }
  }
}

// The first checkpoint of a job: none, or this one.
TEST_F(CheckpointCrashTest, ACrashAtAnyOperationOfTheFirstLeavesNoneOrAWholeOne) {
  const uint64_t last = OperationsOfTheSecond().first;
  for (uint64_t at = 3; at <= last; ++at) {  // 1 and 2 make the job's directory
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      SCOPED_TRACE(absl::StrCat("operation ", at, ", seed ", seed));
      MemoryFileSystem files;
      MakeJobDirectory(files);
      files.SetFault(at, Fault::kCrash);
      ASSERT_FALSE(Write(files, 1).ok());
      files.Restart(seed);
      const auto start = LoadStart(files, kCheckpoints);
      if (start.ok()) {
        CheckWhole(files, kCheckpoints, 1);
      } else {
        ASSERT_TRUE(absl::IsNotFound(start.status())) << start.status();
      }
      ASSERT_EQ(Write(files, 2), absl::OkStatus());
      ASSERT_EQ(CheckAll(files), 2U);
    }
  }
}

}  // namespace
}  // namespace parley::testing
