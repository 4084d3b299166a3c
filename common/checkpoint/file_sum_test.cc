#include "common/checkpoint/file_sum.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"

namespace parley {
namespace {

// A file in memory that counts what is read of it.
class CountingFile final : public ReadableFile {
 public:
  explicit CountingFile(std::vector<std::byte> content) : content_(std::move(content)) {}

  uint64_t size() const override { return content_.size(); }
  absl::Status Read(uint64_t offset, absl::Span<std::byte> bytes) const override {
    if (offset + bytes.size() > content_.size()) return absl::DataLossError("it ends before");
    std::copy_n(content_.begin() + static_cast<std::ptrdiff_t>(offset), bytes.size(),
                bytes.begin());
    bytes_read_ += bytes.size();
    return absl::OkStatus();
  }

  absl::Span<const std::byte> Part(uint64_t begin, uint64_t end) const {
    return absl::MakeConstSpan(content_).subspan(begin, end - begin);
  }
  uint64_t bytes_read() const { return bytes_read_; }

 private:
  const std::vector<std::byte> content_;
  mutable uint64_t bytes_read_ = 0;
};

std::vector<std::byte> RandomBytes(std::mt19937& random, size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

CheckpointFile Written(const std::vector<std::byte>& content) {
  CheckpointFile written;
  written.set_bytes(content.size());
  written.set_crc32(absl::StrFormat(
      "%08x", crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size())));
  return written;
}

TEST(FileSumTest, PartsInAnyOrderGiveTheSumOfTheFileAndNothingIsReadTwice) {
  std::mt19937 random(4);
  for (int round = 0; round < 200; ++round) {
    const std::vector<std::byte> content = RandomBytes(random, random() % 5000);
    const CountingFile file(content);
    std::vector<std::pair<uint64_t, uint64_t>> parts;
    uint64_t left_out = content.size();
    for (uint64_t begin = 0; begin < content.size();) {
      const uint64_t end = std::min<uint64_t>(content.size(), begin + 1 + random() % 700);
      if (random() % 4 != 0) {
        parts.emplace_back(begin, end);
        left_out -= end - begin;
      }
      begin = end;
    }
    std::shuffle(parts.begin(), parts.end(), random);
    FileSum sum;
    for (const auto& [begin, end] : parts) sum.Add(begin, file.Part(begin, end));
    EXPECT_EQ(sum.empty(), parts.empty());
    const absl::Status status = sum.Check(file, "file", Written(content));
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(file.bytes_read(), left_out);
  }
}

TEST(FileSumTest, PartsThatOverlapDoNoHarm) {
  std::mt19937 random(5);
  const std::vector<std::byte> content = RandomBytes(random, 3000);
  for (int round = 0; round < 200; ++round) {
    const CountingFile file(content);
    FileSum sum;
    for (int i = 0; i < 10; ++i) {
      uint64_t begin = random() % 3001;
      uint64_t end = random() % 3001;
      if (begin > end) std::swap(begin, end);
      sum.Add(begin, file.Part(begin, end));
    }
    const absl::Status status = sum.Check(file, "file", Written(content));
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST(FileSumTest, AChangedByteIsFoundWhetherItWasReadOrNot) {
  std::mt19937 random(6);
  const std::vector<std::byte> content = RandomBytes(random, 100);
  for (size_t at = 0; at < content.size(); ++at) {
    std::vector<std::byte> changed = content;
    changed[at] ^= std::byte{1};
    const CountingFile file(changed);
    FileSum sum;
    sum.Add(70, file.Part(70, 90));
    sum.Add(20, file.Part(20, 50));
    const absl::Status status = sum.Check(file, "dir/file", Written(content));
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << at;
    for (const std::string& word :
         {std::string("dir/file"), Written(content).crc32(), Written(changed).crc32()}) {
      EXPECT_TRUE(absl::StrContains(status.message(), word)) << word << ": " << status;
    }
  }
}

TEST(FileSumTest, AnotherSizeIsDataLossAndSaidSo) {
  const std::vector<std::byte> content(100);
  CheckpointFile written = Written(content);
  written.set_bytes(101);
  const absl::Status status = FileSum().Check(CountingFile(content), "file", written);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(absl::StrContains(status.message(), "100 bytes where 101 were written")) << status;
}

}  // namespace
}  // namespace parley
