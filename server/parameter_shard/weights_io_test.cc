#include "server/parameter_shard/weights_io.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/safetensors/header.h"
#include "common/safetensors/writer.h"
#include "common/tensor.h"
#include "server/parameter_shard/checkpoint_io.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {
namespace {

// Its momentum starts with the first gradient itself, so that a wrong step count shows.
JobConfig MomentumJob() {
  JobConfig job = MeanJob();
  Sgd* sgd = job.mutable_optimizer()->mutable_sgd();
  sgd->set_momentum(0.5);
  sgd->set_dampening(0.5);
  return job;
}

ViewOptions Options(uint32_t shards) {
  return {.tensors = {{"w", 2 * kBlockElements + 100},
                      {"b", 10},
                      {"n", 1, true, I64},
                      {"d", 6, false, F64}},
          .shards = shards,
          .placement_seed = shards};
}

// Counts the bytes that are read of files.
class CountingFile final : public ReadableFile {
 public:
  CountingFile(std::unique_ptr<ReadableFile> file, uint64_t* bytes)
      : file_(std::move(file)), bytes_(bytes) {}
  uint64_t size() const override { return file_->size(); }
  absl::Status Read(uint64_t offset, absl::Span<std::byte> bytes) const override {
    *bytes_ += bytes.size();
    return file_->Read(offset, bytes);
  }

 private:
  const std::unique_ptr<ReadableFile> file_;
  uint64_t* const bytes_;
};

class CountingFiles final : public FileSystem {
 public:
  uint64_t bytes = 0;

  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path) override {
    auto file = files_->Open(path);
    if (!file.ok()) return file.status();
    return std::make_unique<CountingFile>(*std::move(file), &bytes);
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    return files_->Create(path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return files_->Rename(from, to);
  }
  absl::Status Link(const std::string& from, const std::string& to) override {
    return files_->Link(from, to);
  }
  absl::Status Remove(const std::string& path) override { return files_->Remove(path); }
  absl::Status RemoveDirectory(const std::string& path) override {
    return files_->RemoveDirectory(path);
  }
  absl::Status CreateDirectories(const std::string& path) override {
    return files_->CreateDirectories(path);
  }
  absl::Status SyncDirectory(const std::string& path) override {
    return files_->SyncDirectory(path);
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override {
    return files_->List(directory);
  }
  bool Exists(const std::string& path) override { return files_->Exists(path); }
  absl::StatusOr<FileInfo> Info(const std::string& path) override { return files_->Info(path); }

 private:
  const std::unique_ptr<FileSystem> files_ = PosixFileSystem();
};

class WeightsIoTest : public ::testing::Test {
 protected:
  WeightsIoTest() : files_(PosixFileSystem()) {
    const std::string folder = absl::StrCat(
        ::testing::TempDir(), "/", ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder);
    path_ = folder + "/model.safetensors";
  }

  // Small whole numbers, for all but those that are left out; `w` in another type if so asked.
  void Write(const ClusterView& view, DataType type_of_w = F32, const std::string& without = "") {
    std::vector<TensorSpec> tensors;
    for (TensorSpec tensor : view.tensors()) {
      if (tensor.name() == "w") tensor.set_dtype(type_of_w);
      if (tensor.name() != without) tensors.push_back(tensor);
    }
    SortForSafetensors(tensors);
    auto writer = SafetensorsWriter::Create(*files_, path_, tensors);
    ASSERT_TRUE(writer.ok()) << writer.status();
    std::mt19937 random(11);
    for (const TensorSpec& tensor : tensors) {
      std::string& bytes = written_[tensor.name()];
      bytes.clear();
      for (uint64_t i = 0; i < ElementCount(tensor); ++i) {
        const auto value = static_cast<int16_t>(random() % 200);
        if (tensor.dtype() == F16) {
          Append(FloatToHalf(value), bytes);
        } else if (tensor.dtype() == F32) {
          Append(static_cast<float>(value), bytes);
        } else if (tensor.dtype() == F64) {
          Append(static_cast<double>(value), bytes);
        } else {
          Append(static_cast<int64_t>(value), bytes);
        }
        if (tensor.name() == "w") w_[i] = static_cast<float>(value);
      }
      ASSERT_TRUE((*writer)
                      ->Append(absl::MakeConstSpan(reinterpret_cast<const std::byte*>(bytes.data()),
                                                   bytes.size()))
                      .ok());
    }
    ASSERT_TRUE((*writer)->Finish().ok());
  }

  absl::Status Load(ShardCluster& cluster) {
    for (uint32_t i = 0; i < cluster.size(); ++i) {
      Shard& shard = cluster.shard(i);
      absl::Status status = LoadCheckpoint(
          *files_, path_, *shard.routing(), [&](uint32_t slice, const SliceStart& start) {
            Replies replies;
            return shard.StartSlice(slice, start, cluster.now(), replies);
          });
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  ClusterView View(uint32_t shards) {
    ClusterView view = MakeView(Options(shards));
    view.set_start_from(path_);
    return view;
  }

  template <class T>
  static void Append(T value, std::string& bytes) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }

  const std::unique_ptr<FileSystem> files_;
  std::string path_;
  std::map<std::string, std::string> written_;
  Floats w_ = Floats(2 * kBlockElements + 100);
};

TEST_F(WeightsIoTest, AnyNumberOfShardsHoldsTheFilesValuesAtVersion0) {
  Write(View(1));
  for (const uint32_t shards : {1, 2, 5}) {
    ShardCluster cluster(MomentumJob(), View(shards), /*start=*/false);
    ASSERT_EQ(Load(cluster), absl::OkStatus());
    std::map<std::string, std::string> held;
    for (const Slice& slice : cluster.view().slices()) {
      const auto pulled = cluster.Pull(0, slice.id(), 0);
      ASSERT_TRUE(pulled->has_value() && (*pulled)->ok());
      const PinnedBuffer& values = (**pulled)->slices[0].values;
      held[cluster.view().tensors(static_cast<int>(slice.tensor())).name()].append(
          reinterpret_cast<const char*>(values->data()), values->size());
    }
    EXPECT_TRUE(held == written_) << shards << " shards";  // megabytes are not to be printed
  }
}

TEST_F(WeightsIoTest, TheOptimizerStartsAnew) {
  Write(View(1));
  ShardCluster cluster(MomentumJob(), View(2), /*start=*/false);
  ASSERT_EQ(Load(cluster), absl::OkStatus());
  for (uint32_t i = 0; i < cluster.size(); ++i) EXPECT_TRUE(cluster.shard(i).ready());
  cluster.PushAll(0, 1, 0, 2);
  for (const Slice& slice : cluster.view().slices()) {
    if (!cluster.view().tensors(static_cast<int>(slice.tensor())).buffer()) continue;
    const int64_t count = 77;
    PushRequest push = cluster.MakePush(0, 1, 0, slice.id(), {0});
    push.mutable_slices(0)->set_dtype(I64);
    push.mutable_slices(0)->set_data(&count, sizeof(count));
    ASSERT_EQ(cluster.Push(push).status(), absl::OkStatus());
  }
  cluster.Complete(cluster.MakeComplete(0, 1, 0));
  cluster.Deliver();
  Floats expected = w_;
  for (float& value : expected) value -= 2;  // the first gradient is not dampened
  EXPECT_EQ(cluster.Values("w", 1), expected);
}

TEST_F(WeightsIoTest, HalvesAreWidened) {
  Write(View(1), F16);
  ShardCluster cluster(MomentumJob(), View(3), /*start=*/false);
  ASSERT_EQ(Load(cluster), absl::OkStatus());
  EXPECT_EQ(cluster.Values("w", 0), w_);
}

// The coordinator has looked at the file, but that was before.
TEST_F(WeightsIoTest, AnotherFileThanTheCoordinatorSawIsRefusedWithItsName) {
  const auto refused = [&](absl::StatusCode code, const std::string& word) {
    ShardCluster cluster(MomentumJob(), View(2), /*start=*/false);
    const absl::Status status = Load(cluster);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_NE(status.message().find(path_), absl::string_view::npos) << status;
    EXPECT_NE(status.message().find(word), absl::string_view::npos) << status;
    EXPECT_FALSE(cluster.shard(0).ready() && cluster.shard(1).ready());
  };
  refused(absl::StatusCode::kNotFound, "");
  Write(View(1), F32, /*without=*/"b");
  refused(absl::StatusCode::kInvalidArgument, "'b' F32 [10]");
  Write(View(1), F64);
  refused(absl::StatusCode::kInvalidArgument, "'w' is F32");
  Write(View(1));
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 1);
  refused(absl::StatusCode::kInvalidArgument, "");
  std::ofstream(path_) << "PK, a pickle of torch.save";
  refused(absl::StatusCode::kInvalidArgument, "save_file(");
}

TEST_F(WeightsIoTest, AViewOfALaterVersionIsRefused) {
  Write(View(1));
  ClusterView view = View(1);
  view.set_start_version(3);
  ShardCluster cluster(MomentumJob(), view, /*start=*/false);
  EXPECT_TRUE(absl::IsInvalidArgument(Load(cluster)));
}

TEST_F(WeightsIoTest, AShardReadsItsSlicesAlone) {
  Write(View(1));
  const uint64_t file_bytes = std::filesystem::file_size(path_);
  uint64_t tensor_bytes = 0;
  for (const auto& [name, bytes] : written_) tensor_bytes += bytes.size();
  const uint64_t header_bytes = 8 + file_bytes - tensor_bytes;  // its length is read twice
  const ShardCluster cluster(MomentumJob(), View(4), /*start=*/false);
  for (uint32_t i = 0; i < 4; ++i) {
    const auto routing = Routing::Make(cluster.view(), i);
    ASSERT_TRUE(routing.ok()) << routing.status();
    uint64_t own_bytes = 0;
    CountingFiles files;
    const absl::Status loaded =
        LoadWeights(files, path_, **routing, [&](uint32_t, const SliceStart& start) {
          own_bytes += start.values.size();
          return absl::OkStatus();
        });
    ASSERT_EQ(loaded, absl::OkStatus());
    EXPECT_EQ(files.bytes, header_bytes + own_bytes);
  }
}

}  // namespace
}  // namespace parley::testing
