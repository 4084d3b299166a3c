// Whatever byte of whatever file of a checkpoint is changed, and wherever a file ends too early:
// what reads it says so, with the file's name and the range, or has read what was written.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_for_test.h"
#include "common/checkpoint/file_blocks.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/names.h"
#include "common/checkpoint/reader.h"
#include "common/checkpoint/verify.h"
#include "common/memory_file_system.h"
#include "common/tensor.h"

namespace parley {
namespace {

constexpr char kRoot[] = "/checkpoints";
constexpr uint32_t kShards = 3;
constexpr uint64_t kBlockBytes = 512;

class CheckpointDamage : public testing::Test {
 protected:
  // An older checkpoint lies beside, whole and of the same model: to load that one would be wrong.
  void SetUp() override {
    ASSERT_TRUE(Write(120, ModelForTest(1), 1).ok());
    ASSERT_TRUE(Write(123, model_, 2).ok());
    const auto manifest = ReadManifest(files_, Folder(123));
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    manifest_ = *manifest;
    ASSERT_EQ(Load(), absl::OkStatus());
  }

  static std::string Folder(uint64_t step) {
    return absl::StrCat(kRoot, "/", StepFolderName(step));
  }
  absl::Status Write(uint64_t step, const ModelForTest& model, uint32_t seed) {
    return WriteCheckpointForTest(files_, Folder(step), model, kShards, seed, kBlockBytes);
  }
  std::string Content(const std::string& path) { return *ReadWholeFile(files_, path); }
  void SetContent(const std::string& path, const std::string& content) {
    ASSERT_EQ(WriteFileAtomically(files_, path, content), absl::OkStatus());
  }
  std::vector<std::string> Paths() const {
    std::vector<std::string> paths = {absl::StrCat(kRoot, "/latest"),
                                      Folder(123) + "/manifest.json"};
    for (const CheckpointFile& file : manifest_.files()) {
      paths.push_back(absl::StrCat(Folder(123), "/", file.name()));
    }
    return paths;
  }
  // nullptr if it is none of the shards' files.
  const CheckpointFile* DataFile(const std::string& path) const {
    for (const CheckpointFile& file : manifest_.files()) {
      if (absl::EndsWith(path, "/" + file.name())) return &file;
    }
    return nullptr;
  }

  // As who needs all of it loads it: what is not an error is compared with what was written.
  absl::Status Load() {
    const auto reader = CheckpointReader::Open(files_, kRoot);
    if (!reader.ok()) return reader.status();
    std::map<std::string, std::vector<std::byte>> values;
    for (const TensorSpec& tensor : (*reader)->manifest().tensors()) {
      std::vector<std::string> names = {tensor.name()};
      for (const std::string& state : (*reader)->StatesOf(tensor.name())) {
        names.push_back(StateName(tensor.name(), state));
      }
      for (const std::string& name : names) {
        const TensorSpec& there = *(*reader)->Find(name);
        std::vector<std::byte>& bytes = values[name];
        bytes.resize(ByteCount(there));
        absl::Status status = (*reader)->Read(name, 0, ElementCount(there), absl::MakeSpan(bytes));
        if (!status.ok()) return status;
      }
    }
    if (absl::Status status = (*reader)->VerifyRead(); !status.ok()) return status;
    EXPECT_EQ((*reader)->folder(), Folder(123));
    EXPECT_EQ((*reader)->manifest().DebugString(), manifest_.DebugString());
    EXPECT_TRUE(values == model_.values) << "a wrong load";
    return absl::OkStatus();
  }

  // damage: what the message must say of a file of tensors. of_a_name: of a manifest, which may be
  // a later release's then.
  void Check(const std::string& path, const std::string& damaged, const std::string& damage,
             bool of_a_name = false) {
    const std::string good = Content(path);
    if (damaged == good) return;
    SetContent(path, damaged);
    const absl::Status loaded = Load();
    const absl::Status verified = VerifyCheckpoint(files_, kRoot);
    EXPECT_EQ(loaded.ok(), verified.ok()) << loaded << "\n" << verified;
    if (loaded.ok()) ++harmless_;
    if (const auto folder = ResolveCheckpoint(files_, kRoot); folder.ok()) {
      EXPECT_EQ(*folder, Folder(123));
    }
    const bool is_data = DataFile(path) != nullptr;
    EXPECT_FALSE(is_data && loaded.ok());
    // A `latest` may say something that nobody has written, but somebody could.
    const bool is_latest = absl::EndsWith(path, "/latest");
    for (const absl::Status& status : {loaded, verified}) {
      if (status.ok()) continue;
      EXPECT_TRUE(absl::IsDataLoss(status) ||
                  ((is_latest || of_a_name) && absl::IsInvalidArgument(status)))
          << status;
      EXPECT_TRUE(absl::StartsWith(status.message(), path + ": ")) << status;
      EXPECT_TRUE(!is_data || absl::StrContains(status.message(), damage))
          << damage << ": " << status;
    }
    SetContent(path, good);
  }

  void CheckChanged(const std::string& path, size_t at, char byte) {
    std::string damaged = Content(path);
    damaged[at] = byte;
    SCOPED_TRACE(absl::StrCat(path, ", byte ", at, " is ", static_cast<int>(byte)));
    std::string damage;
    if (const CheckpointFile* file = DataFile(path)) {
      const FileBlocks blocks(*file);
      const uint64_t block = blocks.Of(at);
      damage = absl::StrCat("the CRC-32 of its bytes ", blocks.Begin(block), " to ",
                            blocks.End(block), " is ");
    }
    Check(path, damaged, damage,
          absl::EndsWith(path, "/manifest.json") && IsOfAName(Content(path), at));
  }

  void CheckTruncated(const std::string& path, size_t size) {
    const std::string good = Content(path);
    SCOPED_TRACE(absl::StrCat(path, ", its first ", size, " bytes"));
    Check(path, good.substr(0, size),
          absl::StrCat("bytes ", size, " to ", good.size(), " are missing"));
  }

  MemoryFileSystem files_;
  const ModelForTest model_{2};
  Manifest manifest_;
  uint64_t harmless_ = 0;
};

TEST_F(CheckpointDamage, AFlippedBitAnywhereIsFoundOrHarmless) {
  std::mt19937 random(7);
  for (const std::string& path : Paths()) {
    const std::string good = Content(path);
    harmless_ = 0;
    for (int i = 0; i < 200; ++i) {
      const size_t at = random() % good.size();
      CheckChanged(path, at, static_cast<char>(good[at] ^ (1 << random() % 8)));
    }
    EXPECT_LT(harmless_, 30U) << path << ": white space is little of it";
  }
}

TEST_F(CheckpointDamage, AChangedByteAnywhereIsFoundOrHarmless) {
  std::mt19937 random(8);
  for (const std::string& path : Paths()) {
    const size_t size = Content(path).size();
    for (int i = 0; i < 200; ++i) {
      CheckChanged(path, random() % size, static_cast<char>(random()));
    }
    // The file's own description of itself, and what a person may have typed.
    for (size_t at = 0; at < std::min<size_t>(size, 300); ++at) CheckChanged(path, at, '1');
  }
}

TEST_F(CheckpointDamage, AFileThatEndsTooEarlyIsFound) {
  std::mt19937 random(9);
  for (const std::string& path : Paths()) {
    const size_t size = Content(path).size();
    for (int i = 0; i < 50; ++i) CheckTruncated(path, random() % size);
    CheckTruncated(path, 0);
    CheckTruncated(path, size - 1);
  }
}

TEST_F(CheckpointDamage, FilesThatAreGoneOrChangedPlacesAreFound) {
  for (const std::string& path : Paths()) {
    const std::string good = Content(path);
    ASSERT_TRUE(files_.Remove(path).ok());
    // Without a `latest` there was none.
    const absl::StatusCode code =
        absl::EndsWith(path, "/latest") ? absl::StatusCode::kNotFound : absl::StatusCode::kDataLoss;
    for (const absl::Status& status : {Load(), VerifyCheckpoint(files_, kRoot)}) {
      EXPECT_EQ(status.code(), code) << path << ": " << status;
      EXPECT_TRUE(absl::StrContains(status.message(), DataFile(path) ? path : kRoot)) << status;
    }
    SetContent(path, good);
  }
  const std::string first = Folder(123) + "/shard-0.safetensors";
  const std::string other = Folder(120) + "/shard-0.safetensors";
  Check(first, Content(Folder(123) + "/shard-1.safetensors"), "");
  Check(first, Content(other), "");
  SetContent(Folder(123) + "/manifest.json", Content(Folder(120) + "/manifest.json"));
  EXPECT_EQ(Load().code(), absl::StatusCode::kDataLoss) << "the files are not that manifest's";
}

}  // namespace
}  // namespace parley
