#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "common/crc32.h"
#include "common/safetensors/header.h"
#include "common/safetensors/reader.h"
#include "common/safetensors/writer.h"
#include "common/tensor.h"

namespace parley {
namespace {

TensorSpec Tensor(const std::string& name, DataType dtype, const std::vector<int64_t>& shape) {
  TensorSpec tensor;
  tensor.set_name(name);
  tensor.set_dtype(dtype);
  for (const int64_t size : shape) tensor.add_shape(size);
  return tensor;
}

class SafetensorsFile : public testing::Test {
 protected:
  SafetensorsFile()
      : files_(PosixFileSystem()),
        path_(std::filesystem::path(testing::TempDir()) / "file.safetensors") {}

  // Random bytes for all tensors.
  SafetensorsWriter::Written Write() {
    std::mt19937 random(3);
    auto writer = SafetensorsWriter::Create(*files_, path_, tensors_);
    EXPECT_TRUE(writer.ok()) << writer.status();
    data_.clear();
    for (const TensorSpec& tensor : tensors_) {
      std::vector<std::byte> bytes(ByteCount(tensor));
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
      const size_t half = bytes.size() / 2;
      EXPECT_TRUE((*writer)->Append(absl::MakeConstSpan(bytes).first(half)).ok());
      EXPECT_TRUE((*writer)->Append(absl::MakeConstSpan(bytes).subspan(half)).ok());
      data_.push_back(bytes);
    }
    auto written = (*writer)->Finish();
    EXPECT_TRUE(written.ok()) << written.status();
    return *written;
  }

  std::string Content() {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void SetContent(const std::string& content) { std::ofstream(path_, std::ios::binary) << content; }

  const std::unique_ptr<FileSystem> files_;
  const std::string path_;
  const std::vector<TensorSpec> tensors_ = {Tensor("d", F64, {2, 3}), Tensor("n", I64, {}),
                                            Tensor("w", F32, {5}),    Tensor("e", F32, {0, 4}),
                                            Tensor("h", BF16, {3}),   Tensor("m", BOOL, {7})};
  std::vector<std::vector<std::byte>> data_;
};

TEST_F(SafetensorsFile, ReadsBackBitwiseInAnyRange) {
  const auto written = Write();
  const std::string content = Content();
  EXPECT_EQ(written.bytes, content.size());
  EXPECT_EQ(written.crc32, Crc32Text(Crc32(0, std::string_view(content))));
  const auto reader = SafetensorsReader::Open(*files_, path_);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->header().tensors.size(), tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const SafetensorsEntry* entry = (*reader)->Find(tensors_[i].name());
    ASSERT_NE(entry, nullptr);
    EXPECT_EQ(entry->tensor.SerializeAsString(), tensors_[i].SerializeAsString());
    for (size_t begin = 0; begin <= data_[i].size(); ++begin) {
      for (size_t end = begin; end <= data_[i].size(); ++end) {
        std::vector<std::byte> bytes(end - begin);
        ASSERT_TRUE((*reader)->Read(*entry, begin, absl::MakeSpan(bytes)).ok());
        ASSERT_TRUE(std::equal(bytes.begin(), bytes.end(), data_[i].begin() + begin));
      }
    }
    std::vector<std::byte> more(data_[i].size() + 1);
    EXPECT_EQ((*reader)->Read(*entry, 0, absl::MakeSpan(more)).code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ((*reader)->Read(*entry, ~uint64_t{0}, absl::MakeSpan(more)).code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ((*reader)->Find("other"), nullptr);
}

TEST_F(SafetensorsFile, TheSumsOfItsBlocksAreThoseOfTheFileHoweverItsBytesCome) {
  const std::vector<TensorSpec> tensors = {Tensor("w", F32, {300})};
  std::mt19937 random(8);
  for (const uint64_t block_bytes : {1, 7, 100, 600, 1199, 1200, 1201, 5000}) {
    std::vector<std::byte> bytes(1200);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    auto writer = SafetensorsWriter::Create(*files_, path_, tensors, {}, block_bytes);
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (absl::Span<const std::byte> rest = bytes; !rest.empty();) {
      const auto part = rest.first(std::min<size_t>(rest.size(), random() % 500));
      ASSERT_TRUE((*writer)->Append(part).ok());
      rest.remove_prefix(part.size());
    }
    const auto written = (*writer)->Finish();
    ASSERT_TRUE(written.ok()) << written.status();
    const std::string content = Content();
    EXPECT_EQ(written->bytes, content.size());
    EXPECT_EQ(written->header_bytes, content.size() - 1200);
    EXPECT_EQ(written->block_bytes, block_bytes);
    EXPECT_EQ(written->crc32, Crc32Text(Crc32(0, std::string_view(content))));
    std::string sums = Crc32Text(Crc32(0, content.substr(0, written->header_bytes)));
    for (size_t at = written->header_bytes; at < content.size(); at += block_bytes) {
      sums += Crc32Text(Crc32(0, content.substr(at, block_bytes)));
    }
    EXPECT_EQ(written->block_crc32s, sums);
  }
}

TEST_F(SafetensorsFile, EveryTruncationIsAnErrorThatNamesTheFile) {
  Write();
  const std::string content = Content();
  for (size_t size = 0; size < content.size(); ++size) {
    SetContent(content.substr(0, size));
    const auto reader = SafetensorsReader::Open(*files_, path_);
    ASSERT_EQ(reader.status().code(), absl::StatusCode::kInvalidArgument) << size;
    ASSERT_TRUE(absl::StrContains(reader.status().message(), path_));
  }
  SetContent(content + "x");
  EXPECT_FALSE(SafetensorsReader::Open(*files_, path_).ok());
}

TEST_F(SafetensorsFile, AFileThatShrinksWhileOpenIsDataLoss) {
  Write();
  const auto reader = SafetensorsReader::Open(*files_, path_);
  ASSERT_TRUE(reader.ok());
  std::filesystem::resize_file(path_, 100);
  std::vector<std::byte> bytes(7);
  EXPECT_EQ((*reader)->Read(*(*reader)->Find("m"), 0, absl::MakeSpan(bytes)).code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(SafetensorsFile, AWriterTakesExactlyItsBytes) {
  auto writer = SafetensorsWriter::Create(*files_, path_, {Tensor("a", F32, {2})});
  ASSERT_TRUE(writer.ok());
  EXPECT_EQ((*writer)->Finish().status().code(), absl::StatusCode::kFailedPrecondition);
  const std::vector<std::byte> bytes(9);
  EXPECT_EQ((*writer)->Append(bytes).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE((*writer)->Append(absl::MakeConstSpan(bytes).first(8)).ok());
  EXPECT_TRUE((*writer)->Finish().ok());
}

TEST_F(SafetensorsFile, FilesThatCannotBeAreErrors) {
  EXPECT_EQ(SafetensorsReader::Open(*files_, path_ + ".none").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(SafetensorsWriter::Create(*files_, "/none/x", tensors_).status().code(),
            absl::StatusCode::kNotFound);
}

// What is appended may wait in memory for the rest of its piece, so that a full disk is told by the
// end at the latest.
TEST_F(SafetensorsFile, AFullDiskIsToldBeforeItIsSaidToBeWritten) {
  auto writer = SafetensorsWriter::Create(*files_, "/dev/full", {Tensor("a", F32, {2})});
  ASSERT_TRUE(writer.ok()) << writer.status();
  const std::vector<std::byte> bytes(8);
  EXPECT_TRUE((*writer)->Append(bytes).ok());
  EXPECT_EQ((*writer)->Finish().status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(SafetensorsFile, OneWithoutTensorsIsAFile) {
  auto writer = SafetensorsWriter::Create(*files_, path_, {});
  ASSERT_TRUE(writer.ok() && (*writer)->Finish().ok());
  const auto reader = SafetensorsReader::Open(*files_, path_);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_TRUE((*reader)->header().tensors.empty());
}

}  // namespace
}  // namespace parley
