#include "common/checkpoint/file_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/file_blocks.h"
#include "common/crc32.h"

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

uint32_t SumOf(const std::vector<std::byte>& content, uint64_t begin, uint64_t end) {
  return Crc32(0, absl::MakeConstSpan(content).subspan(begin, end - begin));
}

// With a header of so many bytes; block_bytes 0: as an earlier release wrote it.
CheckpointFile Written(const std::vector<std::byte>& content, uint64_t header_bytes,
                       uint64_t block_bytes) {
  CheckpointFile written;
  written.set_name("file");
  written.set_bytes(content.size());
  written.set_crc32(Crc32Text(SumOf(content, 0, content.size())));
  if (block_bytes == 0) return written;
  written.set_header_bytes(header_bytes);
  written.set_block_bytes(block_bytes);
  std::string sums = Crc32Text(SumOf(content, 0, header_bytes));
  for (uint64_t begin = header_bytes; begin < content.size(); begin += block_bytes) {
    sums +=
        Crc32Text(SumOf(content, begin, std::min<uint64_t>(content.size(), begin + block_bytes)));
  }
  written.set_block_crc32s(sums);
  EXPECT_TRUE(FileBlocks::Check(written).ok()) << FileBlocks::Check(written);
  return written;
}

TEST(FileSumTest, ReadsExactlyWhatIsMissingOfTheBlocksThatPartsLieIn) {
  std::mt19937 random(4);
  for (int round = 0; round < 500; ++round) {
    const std::vector<std::byte> content = RandomBytes(random, 1 + random() % 5000);
    const CheckpointFile written =
        Written(content, 1 + random() % content.size(), random() % 5 == 0 ? 0 : 1 + random() % 900);
    const CountingFile file(content);
    std::vector<std::pair<uint64_t, uint64_t>> parts;
    std::vector<bool> read(content.size());
    for (uint64_t begin = 0; begin < content.size();) {
      const uint64_t end = std::min<uint64_t>(content.size(), begin + 1 + random() % 700);
      if (random() % 4 == 0) {
        parts.emplace_back(begin, end);
        std::fill(read.begin() + begin, read.begin() + end, true);
      }
      begin = end;
    }
    uint64_t missing = 0;
    const FileBlocks blocks(written);
    for (uint64_t block = 0; block < blocks.count(); ++block) {
      const auto begin = read.begin() + blocks.Begin(block);
      const auto end = read.begin() + blocks.End(block);
      if (std::find(begin, end, true) != end) missing += std::count(begin, end, false);
    }
    std::shuffle(parts.begin(), parts.end(), random);
    FileSum sum(written);
    for (const auto& [begin, end] : parts) sum.Add(begin, file.Part(begin, end));
    const absl::Status status = sum.CheckTouched(file, "file");
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(file.bytes_read(), missing);
    EXPECT_TRUE(sum.CheckTouched(file, "file").ok());
    EXPECT_EQ(file.bytes_read(), missing) << "nothing was added since";
    EXPECT_TRUE(sum.CheckAll(file, "file").ok());
    EXPECT_EQ(file.bytes_read(), missing + content.size());
  }
}

TEST(FileSumTest, PartsThatOverlapDoNoHarm) {
  std::mt19937 random(5);
  const std::vector<std::byte> content = RandomBytes(random, 3000);
  for (int round = 0; round < 200; ++round) {
    const CheckpointFile written = Written(content, 1 + random() % 2999, random() % 2000);
    const CountingFile file(content);
    FileSum sum(written);
    for (int i = 0; i < 10; ++i) {
      uint64_t begin = random() % 3001;
      uint64_t end = random() % 3001;
      if (begin > end) std::swap(begin, end);
      sum.Add(begin, file.Part(begin, end));
    }
    const absl::Status status = sum.CheckTouched(file, "file");
    EXPECT_TRUE(status.ok()) << status;
  }
}

// Header [0, 30), blocks [30, 70) and [70, 100).
TEST(FileSumTest, AChangedByteIsFoundWithItsBlockAndBothSums) {
  std::mt19937 random(6);
  const std::vector<std::byte> content = RandomBytes(random, 100);
  for (const uint64_t block_bytes : {0, 40}) {
    const CheckpointFile written = Written(content, 30, block_bytes);
    const FileBlocks blocks(written);
    for (size_t at = 0; at < content.size(); ++at) {
      std::vector<std::byte> changed = content;
      changed[at] ^= std::byte{1};
      const CountingFile file(changed);
      const uint64_t block = blocks.Of(at);
      const std::string damage =
          absl::StrCat("dir/file: is damaged: the CRC-32 of its bytes ", blocks.Begin(block),
                       " to ", blocks.End(block), " is ",
                       Crc32Text(SumOf(changed, blocks.Begin(block), blocks.End(block))), " where ",
                       std::string(blocks.Sum(block)), " was written");
      FileSum sum(written);
      sum.Add(75, file.Part(75, 90));
      sum.Add(80, file.Part(80, 100));
      const absl::Status touched = sum.CheckTouched(file, "dir/file");
      EXPECT_EQ(touched.code(),
                block_bytes == 0 || at >= 70 ? absl::StatusCode::kDataLoss : absl::StatusCode::kOk);
      EXPECT_EQ(sum.CheckTouched(file, "dir/file"), touched) << "it stays damaged";
      const absl::Status header = sum.CheckSizeAndHeader(file, "dir/file");
      EXPECT_EQ(header.ok(), block_bytes == 0 || at >= 30) << header;
      const absl::Status all = sum.CheckAll(file, "dir/file");
      for (const absl::Status& status : {touched, header, all}) {
        if (status.ok()) continue;
        EXPECT_EQ(status.message(), damage);
      }
      EXPECT_EQ(all.code(), absl::StatusCode::kDataLoss) << at;
    }
  }
}

TEST(FileSumTest, NamesSeveralDamagedBlocksButNotThousands) {
  const std::vector<std::byte> zeros(1010);
  const std::vector<std::byte> ones(1010, std::byte{1});
  const CheckpointFile written = Written(zeros, 10, 10);
  const std::string message(FileSum(written).CheckAll(CountingFile(ones), "file").message());
  EXPECT_TRUE(absl::StrContains(message, "of its bytes 60 to 70 is")) << message;
  EXPECT_FALSE(absl::StrContains(message, "of its bytes 80 to 90 is")) << message;
  EXPECT_TRUE(absl::StrContains(message, "and 93 more blocks are damaged")) << message;
}

TEST(FileSumTest, AnotherSizeIsDataLossAndSaidSo) {
  const CheckpointFile written = Written(std::vector<std::byte>(101), 8, 0);
  for (const auto& [size, text] : std::vector<std::pair<size_t, std::string>>{
           {100, "100 bytes where 101 were written: bytes 100 to 101 are missing"},
           {103, "103 bytes where 101 were written: bytes 101 to 103 are not"}}) {
    const CountingFile file{std::vector<std::byte>(size)};
    FileSum sum(written);
    for (const absl::Status& status :
         {sum.CheckAll(file, "file"), sum.CheckSizeAndHeader(file, "file")}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
      EXPECT_TRUE(absl::StrContains(status.message(), text)) << status;
    }
  }
}

}  // namespace
}  // namespace parley
