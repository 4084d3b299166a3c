#include "common/checkpoint/weights_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "common/safetensors/header.h"
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

class WeightsFileTest : public testing::Test {
 protected:
  WeightsFileTest() : files_(PosixFileSystem()) {
    folder_ = std::filesystem::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    path_ = folder_ + "/model.safetensors";
  }

  // Random bytes for all tensors, sorted.
  void Write(std::vector<TensorSpec> tensors,
             const std::map<std::string, std::string>& metadata = {}) {
    SortForSafetensors(tensors);
    auto writer = SafetensorsWriter::Create(*files_, path_, tensors, metadata);
    ASSERT_TRUE(writer.ok()) << writer.status();
    std::mt19937 random(7);
    for (const TensorSpec& tensor : tensors) {
      std::vector<std::byte>& bytes = data_[tensor.name()];
      bytes.resize(ByteCount(tensor));
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
      ASSERT_TRUE((*writer)->Append(bytes).ok());
    }
    ASSERT_TRUE((*writer)->Finish().ok());
  }

  std::unique_ptr<WeightsFile> Open() {
    auto file = WeightsFile::Open(*files_, path_);
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? *std::move(file) : nullptr;
  }

  const std::unique_ptr<FileSystem> files_;
  std::string folder_;
  std::string path_;
  std::map<std::string, std::vector<std::byte>> data_;
};

TEST_F(WeightsFileTest, AFileIsMeantAndAFolderIsNot) {
  Write({Tensor("w", F32, {1})});
  EXPECT_TRUE(*WeightsFile::IsMeantBy(*files_, path_));
  EXPECT_FALSE(*WeightsFile::IsMeantBy(*files_, folder_));
  EXPECT_TRUE(absl::IsNotFound(WeightsFile::IsMeantBy(*files_, folder_ + "/none").status()));
}

TEST_F(WeightsFileTest, AnyRangeIsReadBitwise) {
  const std::vector<TensorSpec> tensors = {Tensor("w", F32, {5, 7}), Tensor("n", I64, {}),
                                           Tensor("m", BOOL, {6}), Tensor("d", F64, {4})};
  Write(tensors);
  const auto file = Open();
  for (const TensorSpec& tensor : tensors) {
    const uint64_t size = ElementBytes(tensor.dtype());
    for (uint64_t begin = 0; begin <= ElementCount(tensor); ++begin) {
      for (uint64_t end = begin; end <= ElementCount(tensor); ++end) {
        std::vector<std::byte> bytes((end - begin) * size);
        ASSERT_EQ(file->Read(tensor, begin, end, absl::MakeSpan(bytes)), absl::OkStatus());
        ASSERT_TRUE(
            std::equal(bytes.begin(), bytes.end(), data_.at(tensor.name()).begin() + begin * size));
      }
    }
  }
}

TEST_F(WeightsFileTest, NarrowerElementsAreWidenedExactlyInAnyRange) {
  constexpr uint64_t kElements = (1 << 18) + 321;  // more than are converted at once
  Write({Tensor("half", F16, {kElements}), Tensor("brain", BF16, {kElements}),
         Tensor("single", F32, {kElements})});
  const auto file = Open();
  const auto stored = [&](const std::string& name, uint64_t i) -> float {
    const std::byte* const data = data_.at(name).data();
    if (name == "single") {
      float value = 0;
      std::memcpy(&value, data + 4 * i, 4);
      return value;
    }
    uint16_t bits = 0;
    std::memcpy(&bits, data + 2 * i, 2);
    return name == "half" ? HalfToFloat(bits) : BFloat16ToFloat(bits);
  };
  const auto same = [](double a, double b) { return a == b || (a != a && b != b); };
  for (const std::string name : {"half", "brain", "single"}) {
    for (const auto& [begin, end] : std::vector<std::pair<uint64_t, uint64_t>>{
             {0, kElements}, {0, 1}, {100, 70'000}, {5, 5}, {kElements - 1, kElements}}) {
      std::vector<double> doubles(end - begin);
      ASSERT_EQ(file->Read(Tensor(name, F64, {kElements}), begin, end,
                           absl::MakeSpan(reinterpret_cast<std::byte*>(doubles.data()),
                                          doubles.size() * sizeof(double))),
                absl::OkStatus());
      std::vector<float> floats(end - begin);
      ASSERT_EQ(file->Read(Tensor(name, F32, {kElements}), begin, end,
                           absl::MakeSpan(reinterpret_cast<std::byte*>(floats.data()),
                                          floats.size() * sizeof(float))),
                absl::OkStatus());
      for (uint64_t i = 0; i < end - begin; ++i) {
        ASSERT_TRUE(same(doubles[i], stored(name, begin + i))) << name << " " << begin + i;
        ASSERT_TRUE(same(floats[i], stored(name, begin + i))) << name << " " << begin + i;
      }
    }
  }
}

TEST_F(WeightsFileTest, ATiedTensorIsReadUnderItsOtherName) {
  Write({Tensor("a", F32, {3}), Tensor("b", F32, {3})},
        {{"format", "pt"}, {"c", "b"}, {"a", "b"}, {"e", "none"}});
  const auto file = Open();
  EXPECT_EQ(file->weights().tied, (std::map<std::string, std::string>{{"c", "b"}}));
  std::vector<std::byte> bytes(12);
  ASSERT_EQ(file->Read(Tensor("c", F32, {3}), 0, 3, absl::MakeSpan(bytes)), absl::OkStatus());
  EXPECT_EQ(bytes, data_.at("b"));
  ASSERT_EQ(file->Read(Tensor("a", F32, {3}), 0, 3, absl::MakeSpan(bytes)), absl::OkStatus());
  EXPECT_EQ(bytes, data_.at("a")) << "a tensor of its own comes first";
}

TEST_F(WeightsFileTest, WhatIsNoStartForATensorIsRefusedWithTheFilesName) {
  Write({Tensor("w", F32, {2, 3})});
  const auto file = Open();
  std::vector<std::byte> bytes(24);
  for (const TensorSpec& wrong : {Tensor("v", F32, {2, 3}), Tensor("w", F32, {3, 2}),
                                  Tensor("w", F32, {6}), Tensor("w", F16, {2, 3})}) {
    const absl::Status status = file->Read(wrong, 0, 6, absl::MakeSpan(bytes));
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), path_)) << status;
  }
  const TensorSpec right = Tensor("w", F32, {2, 3});
  for (const auto& [begin, end] :
       std::vector<std::pair<uint64_t, uint64_t>>{{0, 5}, {1, 7}, {4, 2}, {~uint64_t{0} - 5, 0}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(file->Read(right, begin, end, absl::MakeSpan(bytes))));
  }
}

TEST_F(WeightsFileTest, EveryTruncationAndEveryWrongByteOfTheHeaderIsRefusedOrAFile) {
  Write({Tensor("w", F32, {2, 3}), Tensor("n", I64, {})}, {{"format", "pt"}});
  std::ifstream in(path_, std::ios::binary);
  const std::string good{std::istreambuf_iterator<char>(in), {}};
  const auto set = [&](const std::string& content) {
    std::ofstream(path_, std::ios::binary) << content;
  };
  for (size_t size = 0; size < good.size(); ++size) {
    set(good.substr(0, size));
    const absl::Status status = WeightsFile::Open(*files_, path_).status();
    ASSERT_TRUE(absl::IsInvalidArgument(status)) << size << ": " << status;
    ASSERT_TRUE(absl::StrContains(status.message(), path_)) << status;
    ASSERT_TRUE(absl::StrContains(status.message(), "save_file(")) << status;
  }
  std::mt19937 random(3);
  for (size_t at = 0; at < good.size() - 32; ++at) {
    std::string damaged = good;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
    set(damaged);
    const auto file = WeightsFile::Open(*files_, path_);
    if (!file.ok()) continue;
    std::vector<std::byte> bytes(24);
    (void)(*file)->Read(Tensor("w", F32, {2, 3}), 0, 6, absl::MakeSpan(bytes));
  }
}

}  // namespace
}  // namespace parley
