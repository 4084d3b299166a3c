#include "common/checkpoint/reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_for_test.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/names.h"
#include "common/checkpoint/shard_file.h"
#include "common/checkpoint/verify.h"
#include "common/memory_file_system.h"
#include "common/safetensors/writer.h"
#include "common/tensor.h"

namespace parley {
namespace {

class Checkpoint : public testing::Test {
 protected:
  Checkpoint() : files_(PosixFileSystem()) {
    root_ = std::filesystem::path(testing::TempDir()) /
            testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
    folder_ = absl::StrCat(root_, "/", StepFolderName(123));
  }

  std::string Content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void SetContent(const std::string& path, const std::string& content) {
    std::ofstream(path, std::ios::binary) << content;
  }

  // Replaces the files of the checkpoint by one file with these pieces of zeros.
  void ReplacePieces(const std::vector<TensorSpec>& pieces) {
    uint64_t bytes = 0;
    for (const TensorSpec& piece : pieces) bytes += ByteCount(piece);
    auto writer = SafetensorsWriter::Create(*files_, folder_ + "/shard-0.safetensors", pieces);
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_TRUE((*writer)->Append(std::vector<std::byte>(bytes)).ok());
    const auto written = (*writer)->Finish();
    ASSERT_TRUE(written.ok());
    Manifest manifest = model_.manifest;
    *manifest.add_files() = DescribeShardFile(0, 1, *written);
    ASSERT_TRUE(CommitCheckpoint(*files_, folder_, manifest).ok());
  }

  const std::unique_ptr<FileSystem> files_;
  const ModelForTest model_{5};
  std::string root_;
  std::string folder_;
};

TEST_F(Checkpoint, AnyCutReadsBackBitwiseInAnyOtherCut) {
  std::mt19937 random(9);
  for (const uint32_t shards : {1, 2, 3, 5}) {
    for (uint32_t seed = 0; seed < 4; ++seed) {
      std::filesystem::remove_all(root_);
      ASSERT_TRUE(WriteCheckpointForTest(*files_, folder_, model_, shards, seed).ok());
      EXPECT_TRUE(VerifyCheckpoint(*files_, root_).ok());
      const auto reader = CheckpointReader::Open(*files_, root_);
      ASSERT_TRUE(reader.ok()) << reader.status();
      EXPECT_EQ((*reader)->folder(), folder_);
      EXPECT_EQ((*reader)->manifest().step(), 123U);
      for (const TensorSpec& tensor : model_.all) {
        const TensorSpec* found = (*reader)->Find(tensor.name());
        ASSERT_NE(found, nullptr) << tensor.name();
        EXPECT_EQ(found->SerializeAsString(), tensor.SerializeAsString());
        const std::vector<std::byte>& value = model_.values.at(tensor.name());
        const uint64_t elements = ElementCount(tensor);
        const uint64_t size = ElementBytes(tensor.dtype());
        for (int range = 0; range < 50; ++range) {
          uint64_t begin = range == 0 ? 0 : random() % (elements + 1);
          uint64_t end = range == 0 ? elements : random() % (elements + 1);
          if (begin > end) std::swap(begin, end);
          std::vector<std::byte> bytes((end - begin) * size);
          const absl::Status status =
              (*reader)->Read(tensor.name(), begin, end, absl::MakeSpan(bytes));
          ASSERT_TRUE(status.ok()) << status;
          ASSERT_TRUE(std::equal(bytes.begin(), bytes.end(), value.begin() + begin * size))
              << tensor.name() << " " << begin << ":" << end << " of " << shards << " shards";
        }
        EXPECT_TRUE((*reader)->VerifyRead().ok()) << (*reader)->VerifyRead();
      }
    }
  }
}

TEST_F(Checkpoint, SaysWhichStateThereIs) {
  ASSERT_TRUE(WriteCheckpointForTest(*files_, folder_, model_, 3, 1).ok());
  const auto reader = CheckpointReader::Open(*files_, folder_);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->StatesOf("fc1.weight"), (std::vector<std::string>{"exp_avg", "exp_avg_sq"}));
  EXPECT_TRUE((*reader)->StatesOf("norm.batches").empty());
  EXPECT_EQ((*reader)->Find("fc1"), nullptr);
  EXPECT_EQ((*reader)->Find("fc1.weight.sum"), nullptr);
}

TEST_F(Checkpoint, WrongRangesAndNamesAreErrors) {
  ASSERT_TRUE(WriteCheckpointForTest(*files_, folder_, model_, 2, 1).ok());
  const auto reader = CheckpointReader::Open(*files_, folder_);
  ASSERT_TRUE(reader.ok());
  std::vector<std::byte> bytes(40);
  const auto code = [&](const std::string& name, uint64_t begin, uint64_t end) {
    return (*reader)->Read(name, begin, end, absl::MakeSpan(bytes)).code();
  };
  EXPECT_EQ(code("fc1.bias", 40, 50), absl::StatusCode::kOk);
  EXPECT_EQ(code("other", 0, 10), absl::StatusCode::kNotFound);
  EXPECT_EQ(code("fc1.bias", 41, 51), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("fc1.bias", 20, 10), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("fc1.bias", 0, 11), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("fc1.bias", ~uint64_t{0} - 9, ~uint64_t{0}), absl::StatusCode::kInvalidArgument);
}

TEST_F(Checkpoint, ElementsThatAreMissingTwiceOrNobodysAreDataLoss) {
  ASSERT_TRUE(WriteCheckpointForTest(*files_, folder_, model_, 1, 1).ok());
  const TensorSpec& weight = model_.all[0];
  std::vector<TensorSpec> others;
  for (const TensorSpec& tensor : model_.manifest.tensors()) {
    if (tensor.name() != weight.name()) others.push_back(tensor);
  }
  std::stable_sort(others.begin(), others.end(), [](const TensorSpec& a, const TensorSpec& b) {
    return ElementBytes(a.dtype()) > ElementBytes(b.dtype());
  });
  TensorSpec stranger = weight;
  stranger.set_name("fc9.weight");
  TensorSpec turned = weight;
  turned.set_shape(0, 40);
  turned.set_shape(1, 50);
  TensorSpec other_type = PieceOf(weight, 0, 1000);
  other_type.set_dtype(I32);
  TensorSpec wrong_length = PieceOf(weight, 0, 1000);
  wrong_length.set_shape(0, 999);
  TensorSpec beyond = PieceOf(weight, 0, 2001);
  TensorSpec half_state = PieceOf(weight, 0, 100);
  half_state.set_name("fc1.weight.exp_avg@0:100");
  struct Row {
    std::vector<TensorSpec> pieces;
    std::string word;
  };
  for (const Row& row : std::vector<Row>{
           {{}, "elements 0 to 2000 of 'fc1.weight' are missing"},
           {{PieceOf(weight, 0, 1000)}, "elements 1000 to 2000 of 'fc1.weight' are missing"},
           {{PieceOf(weight, 1000, 2000)}, "elements 0 to 1000 of 'fc1.weight' are missing"},
           {{PieceOf(weight, 0, 500), PieceOf(weight, 600, 2000)}, "elements 500 to 600"},
           {{PieceOf(weight, 0, 600), PieceOf(weight, 500, 2000)}, "elements 500 to 600"},
           {{weight, PieceOf(weight, 0, 600)}, "there twice"},
           {{weight, stranger}, "'fc9.weight' is part of no tensor"},
           {{turned}, "shape or type"},
           {{other_type, PieceOf(weight, 1000, 2000)}, "shape or type"},
           {{wrong_length, PieceOf(weight, 1000, 2000)}, "shape or type"},
           {{beyond}, "shape or type"},
           {{weight, half_state}, "elements 100 to 2000 of 'fc1.weight.exp_avg'"},
       }) {
    std::vector<TensorSpec> pieces = row.pieces;
    pieces.insert(pieces.begin(), others.front());  // I64 first
    pieces.insert(pieces.end(), others.begin() + 1, others.end());
    ReplacePieces(pieces);
    const absl::Status status = CheckpointReader::Open(*files_, folder_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), row.word)) << row.word << ": " << status;
    EXPECT_TRUE(absl::StrContains(status.message(), folder_)) << status;
    EXPECT_EQ(VerifyCheckpoint(*files_, folder_).code(), absl::StatusCode::kDataLoss);
  }
}

// What a shard reads that needs a part of a file: that part, and the rest of its first and last
// block.
TEST_F(Checkpoint, ReadsNoMoreThanTheBlocksThatItNeeds) {
  constexpr uint64_t kBlock = 512;
  MemoryFileSystem files;
  ASSERT_TRUE(WriteCheckpointForTest(files, "/c/step", model_, 1, 1, kBlock).ok());
  const auto manifest = ReadManifest(files, "/c/step");
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  ASSERT_GT(manifest->files(0).block_crc32s().size(), 8U * 20) << "so many blocks";
  std::mt19937 random(3);
  for (int round = 0; round < 100; ++round) {
    const auto reader = CheckpointReader::Open(files, "/c");
    ASSERT_TRUE(reader.ok()) << reader.status();
    const uint64_t opened = files.bytes_read();
    uint64_t begin = random() % 2000;
    uint64_t end = random() % 2000;
    if (begin > end) std::swap(begin, end);
    std::vector<std::byte> bytes(4 * (end - begin));
    ASSERT_TRUE((*reader)->Read("fc1.weight", begin, end, absl::MakeSpan(bytes)).ok());
    const uint64_t before = files.bytes_read();
    uint64_t told = 0;
    ASSERT_TRUE((*reader)->VerifyRead([&](uint64_t count) { return (told += count) != 0; }).ok());
    EXPECT_EQ(told, files.bytes_read() - before) << "of each byte";
    const uint64_t read = files.bytes_read() - opened;
    EXPECT_LE(read, bytes.empty() ? 0 : bytes.size() + 2 * kBlock);
    EXPECT_EQ(read % 4, 0U);
    ASSERT_TRUE((*reader)->VerifyRead().ok());
    EXPECT_EQ(files.bytes_read(), opened + read) << "no block is checked twice";
  }
}

// With one sum for each file, which has to be read whole for it, none of the manifest and of
// `latest`.
TEST_F(Checkpoint, OfAnEarlierReleaseIsReadByTheSumsThatItHas) {
  MemoryFileSystem files;
  ASSERT_TRUE(WriteCheckpointForTest(files, "/c/step", model_, 1, 1).ok());
  auto manifest = ReadManifest(files, "/c/step");
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  CheckpointFile& file = *manifest->mutable_files(0);
  file.clear_header_bytes();
  file.clear_block_bytes();
  file.clear_block_crc32s();
  auto json = FormatManifest(*manifest);
  ASSERT_TRUE(json.ok()) << json.status();
  json->replace(json->find(R"("format": 2)"), 11, R"("format": 1)");
  const size_t sum = json->rfind(R"("crc32": ")");
  json->replace(json->rfind(',', sum), json->size(), "}");
  ASSERT_TRUE(WriteFileAtomically(files, "/c/step/manifest.json", *json).ok());
  ASSERT_TRUE(WriteFileAtomically(files, "/c/latest", "step\n").ok());

  EXPECT_EQ(VerifyCheckpoint(files, "/c"), absl::OkStatus());
  const auto reader = CheckpointReader::Open(files, "/c");
  ASSERT_TRUE(reader.ok()) << reader.status();
  const uint64_t opened = files.bytes_read();
  std::vector<std::byte> bytes(4);
  ASSERT_TRUE((*reader)->Read("fc1.weight", 7, 8, absl::MakeSpan(bytes)).ok());
  EXPECT_TRUE((*reader)->VerifyRead().ok());
  EXPECT_EQ(files.bytes_read() - opened, file.bytes());

  const std::string path = "/c/step/shard-0.safetensors";
  std::string damaged = *ReadWholeFile(files, path);
  damaged.back() ^= 1;
  ASSERT_TRUE(WriteFileAtomically(files, path, damaged).ok());
  EXPECT_EQ(VerifyCheckpoint(files, "/c").code(), absl::StatusCode::kDataLoss);
  const auto again = CheckpointReader::Open(files, "/c");
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_TRUE((*again)->Read("fc1.weight", 7, 8, absl::MakeSpan(bytes)).ok());
  EXPECT_EQ((*again)->VerifyRead().code(), absl::StatusCode::kDataLoss);
}

TEST_F(Checkpoint, NamesEveryDamagedFile) {
  ASSERT_TRUE(WriteCheckpointForTest(*files_, folder_, model_, 3, 1).ok());
  for (const char* name : {"/shard-0.safetensors", "/shard-2.safetensors"}) {
    std::string content = Content(folder_ + name);
    content.back() ^= 1;
    SetContent(folder_ + name, content);
  }
  const absl::Status status = VerifyCheckpoint(*files_, folder_);
  EXPECT_TRUE(absl::StrContains(status.message(), "shard-0.safetensors")) << status;
  EXPECT_FALSE(absl::StrContains(status.message(), "shard-1.safetensors")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "shard-2.safetensors")) << status;
  EXPECT_TRUE(CheckpointReader::Open(*files_, folder_).ok())
      << "sums are for VerifyRead and Verify";
}

}  // namespace
}  // namespace parley
