// A damaged checkpoint, as shards write and load it: no shard starts with other values than were
// written, whatever byte is changed.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_for_test.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/names.h"
#include "common/memory_file_system.h"
#include "server/parameter_shard/checkpoint_fixture.h"
#include "server/parameter_shard/checkpoint_io.h"

namespace parley::testing {
namespace {

constexpr uint64_t kStep = 3;
constexpr uint32_t kLoading = 2;

class CheckpointDamageTest : public ::testing::Test {
 protected:
  // Written by three shards, loaded by two.
  void SetUp() override {
    ShardCluster writing(MomentumJob(), MakeView(CutModel(3, 5)));
    Train(writing, 1, kStep);
    ASSERT_EQ(files_.CreateDirectories(folder_), absl::OkStatus());
    Manifest manifest;
    manifest.set_step(kStep);
    *manifest.mutable_tensors() = writing.view().tensors();
    for (uint32_t i = 0; i < writing.size(); ++i) {
      const Routing& routing = *writing.shard(i).routing();
      const auto slices = writing.shard(i).Snapshot(kStep);
      ASSERT_EQ(slices.status(), absl::OkStatus());
      const auto file = WriteCheckpointFile(files_, folder_, routing, *slices);
      ASSERT_EQ(file.status(), absl::OkStatus());
      *manifest.add_files() = *file;
      for (const auto& [name, steps] : OptimizerSteps(routing, *slices, /*of_each_slice=*/false)) {
        (*manifest.mutable_optimizer_steps())[name] = steps;
      }
    }
    ASSERT_EQ(CommitCheckpoint(files_, folder_, manifest), absl::OkStatus());
    view_ = MakeView(CutModel(kLoading, 9));
    view_.set_start_version(kStep);
    for (uint32_t i = 0; i < kLoading; ++i) {
      const auto loaded = LoadShard(files_, "/c", view_, i);
      ASSERT_EQ(loaded.status(), absl::OkStatus());
      ASSERT_FALSE(loaded->empty()) << "both have something to load";
      written_.push_back(*loaded);
    }
    ASSERT_TRUE(absl::StrContains(written_[0].begin()->second, "momentum_buffer"));
  }

  // Where a shard has found nothing, it has what was written. of_a_name: of a manifest, which may
  // be a later release's then.
  void Check(const std::string& name, const std::string& damaged, bool of_a_name = false) {
    const std::string path = absl::StrCat("/c/", name);
    const std::string good = *ReadWholeFile(files_, path);
    if (damaged == good) return;
    ASSERT_EQ(WriteFileAtomically(files_, path, damaged), absl::OkStatus());
    const bool is_data = absl::EndsWith(name, ".safetensors");
    const bool is_latest = name == "latest";
    bool found = false;
    for (uint32_t i = 0; i < kLoading; ++i) {
      const auto loaded = LoadShard(files_, "/c", view_, i);
      if (loaded.ok()) {
        EXPECT_TRUE(*loaded == written_[i]) << "a wrong load of shard " << i;
        continue;
      }
      found = true;
      const absl::Status& error = loaded.status();
      EXPECT_TRUE(absl::StartsWith(error.message(), path + ": ")) << error;
      EXPECT_TRUE(absl::IsDataLoss(error) ||
                  ((is_latest || of_a_name) && absl::IsInvalidArgument(error)))
          << error;
      if (!is_data) continue;
      EXPECT_TRUE(absl::StrContains(error.message(), "bytes ")) << error;
    }
    EXPECT_TRUE(found || !is_data) << "the two read all of it";
    ASSERT_EQ(WriteFileAtomically(files_, path, good), absl::OkStatus());
  }

  MemoryFileSystem files_;
  const std::string folder_ = "/c/" + StepFolderName(kStep);
  ClusterView view_;
  std::vector<LoadedSlices> written_;  // by shard
};

TEST_F(CheckpointDamageTest, NoShardStartsWithWhatWasNotWritten) {
  std::mt19937 random(11);
  std::vector<std::string> names = {"latest"};
  for (const char* name :
       {"manifest.json", "shard-0.safetensors", "shard-1.safetensors", "shard-2.safetensors"}) {
    names.push_back(absl::StrCat(StepFolderName(kStep), "/", name));
  }
  for (const std::string& name : names) {
    const std::string good = *ReadWholeFile(files_, "/c/" + name);
    for (int i = 0; i < 100; ++i) {
      // Half of them near the start, where headers are.
      const size_t at = random() % (i % 2 == 0 ? good.size() : std::min<size_t>(good.size(), 400));
      std::string damaged = good;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
      SCOPED_TRACE(absl::StrCat(name, ", byte ", at));
      Check(name, damaged, absl::EndsWith(name, "manifest.json") && IsOfAName(good, at));
    }
    for (int i = 0; i < 20; ++i) {
      const size_t size = random() % good.size();
      SCOPED_TRACE(absl::StrCat(name, ", its first ", size, " bytes"));
      Check(name, good.substr(0, size));
    }
  }
}

TEST_F(CheckpointDamageTest, WhatWasWholeAndIsGoneIsDamaged) {
  const auto load = [&](const std::string& folder) {
    return LoadShard(files_, folder, view_, 0).status();
  };
  ASSERT_EQ(files_.Remove(folder_ + "/manifest.json"), absl::OkStatus());
  for (const std::string& lost : {folder_, folder_ + "/", std::string("/c/step-00000009")}) {
    const absl::Status error = load(lost);
    EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss) << error;
    EXPECT_TRUE(absl::StrContains(error.message(), "/manifest.json: ")) << error;
  }
  EXPECT_EQ(load("/c").code(), absl::StatusCode::kDataLoss) << "`latest` names it";
  // Of a machine that does not see the disk, and of a file of weights.
  for (const char* elsewhere : {"/d/step-00000003", "/c/model.safetensors"}) {
    EXPECT_EQ(load(elsewhere).code(), absl::StatusCode::kNotFound) << load(elsewhere);
  }
}

}  // namespace
}  // namespace parley::testing
