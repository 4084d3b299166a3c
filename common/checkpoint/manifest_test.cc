#include "common/checkpoint/manifest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_for_test.h"
#include "common/checkpoint/names.h"
#include "common/checkpoint/verify.h"
#include "common/crc32.h"

namespace parley {
namespace {

// A process that dies at its n-th change of the disk: that one and all later ones do not happen, a
// write happens half.
class DyingFiles final : public FileSystem {
 public:
  DyingFiles(FileSystem& files, int changes) : files_(files), left_(changes) {}
  bool died() const { return left_ < 0; }

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    if (Dies()) return Dead();
    auto file = files_.Create(path);
    if (!file.ok()) return file.status();
    return std::make_unique<File>(*this, *std::move(file));
  }
  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path) override {
    return files_.Open(path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return Dies() ? Dead() : files_.Rename(from, to);
  }
  absl::Status Link(const std::string& from, const std::string& to) override {
    return Dies() ? Dead() : files_.Link(from, to);
  }
  absl::Status Remove(const std::string& path) override {
    return Dies() ? Dead() : files_.Remove(path);
  }
  absl::Status RemoveDirectory(const std::string& path) override {
    return Dies() ? Dead() : files_.RemoveDirectory(path);
  }
  absl::Status CreateDirectories(const std::string& path) override {
    return Dies() ? Dead() : files_.CreateDirectories(path);
  }
  absl::Status SyncDirectory(const std::string& path) override {
    return Dies() ? Dead() : files_.SyncDirectory(path);
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override {
    return files_.List(directory);
  }
  bool Exists(const std::string& path) override { return files_.Exists(path); }
  absl::StatusOr<FileInfo> Info(const std::string& path) override { return files_.Info(path); }

 private:
  class File final : public WritableFile {
   public:
    File(DyingFiles& files, std::unique_ptr<WritableFile> file)
        : files_(files), file_(std::move(file)) {}
    absl::Status Append(absl::Span<const std::byte> bytes) override {
      const bool was_dead = files_.died();
      if (!files_.Dies()) return file_->Append(bytes);
      if (!was_dead) file_->Append(bytes.first(bytes.size() / 2)).IgnoreError();
      return Dead();
    }
    absl::Status Sync() override { return files_.Dies() ? Dead() : file_->Sync(); }
    absl::Status Close() override { return files_.Dies() ? Dead() : file_->Close(); }

   private:
    DyingFiles& files_;
    const std::unique_ptr<WritableFile> file_;
  };

  bool Dies() {
    if (left_ >= 0) --left_;
    return left_ < 0;
  }
  static absl::Status Dead() { return absl::UnavailableError("the process is dead"); }

  FileSystem& files_;
  int left_;
};

class ManifestFile : public testing::Test {
 protected:
  ManifestFile() : files_(PosixFileSystem()) {
    root_ = std::filesystem::path(testing::TempDir()) /
            testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
  }
  std::string Folder(uint64_t step) { return absl::StrCat(root_, "/", StepFolderName(step)); }

  const std::unique_ptr<FileSystem> files_;
  std::string root_;
};

TEST_F(ManifestFile, ACrashAtAnyOperationLeavesTheOldCheckpointOrTheNewOne) {
  const ModelForTest old_model(1);
  const ModelForTest new_model(2);
  bool old_seen = false;
  bool new_seen = false;
  for (int changes = 0;; ++changes) {
    std::filesystem::remove_all(root_);
    ASSERT_TRUE(WriteCheckpointForTest(*files_, Folder(100), old_model, 2, 1).ok());
    DyingFiles dying(*files_, changes);
    const absl::Status status = WriteCheckpointForTest(dying, Folder(123), new_model, 2, 1);
    EXPECT_EQ(status.ok(), !dying.died()) << status;
    const auto folder = ResolveCheckpoint(*files_, root_);
    ASSERT_TRUE(folder.ok()) << folder.status();
    const absl::Status verified = VerifyCheckpoint(*files_, root_);
    ASSERT_TRUE(verified.ok()) << changes << ": " << verified;
    const auto manifest = ReadManifest(*files_, *folder);
    ASSERT_TRUE(manifest.ok());
    const bool is_new = *folder == Folder(123);
    ASSERT_EQ(manifest->seed(), is_new ? 2U : 1U);
    ASSERT_TRUE(!status.ok() || is_new);
    (is_new ? new_seen : old_seen) = true;
    // The folder by its own name is no checkpoint or a whole one.
    if (ResolveCheckpoint(*files_, Folder(123)).ok()) {
      ASSERT_TRUE(VerifyCheckpoint(*files_, Folder(123)).ok());
    }
    if (!dying.died()) break;
  }
  EXPECT_TRUE(old_seen && new_seen);
}

TEST_F(ManifestFile, IsReadAsItWasWritten) {
  const ModelForTest model(1);
  ASSERT_TRUE(WriteCheckpointForTest(*files_, Folder(123), model, 2, 1).ok());
  auto manifest = ReadManifest(*files_, Folder(123));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->format(), 2U);
  EXPECT_EQ(manifest->files_size(), 2);
  EXPECT_EQ(manifest->job().optimizer().adam().rate(), 0.1);
  EXPECT_EQ(manifest->optimizer_steps().at("fc1.weight"), 120U);
  manifest->set_format(0);
  manifest->clear_crc32();
  manifest->clear_files();
  EXPECT_EQ(manifest->DebugString(), model.manifest.DebugString());
}

TEST_F(ManifestFile, ResolvesTheFolderOfAStepAndTheOneWithLatest) {
  const ModelForTest model(1);
  ASSERT_TRUE(WriteCheckpointForTest(*files_, Folder(100), model, 1, 1).ok());
  ASSERT_TRUE(WriteCheckpointForTest(*files_, Folder(200) + "/", model, 1, 1).ok());
  EXPECT_EQ(*ResolveCheckpoint(*files_, root_), Folder(200));
  EXPECT_EQ(*ResolveCheckpoint(*files_, Folder(100)), Folder(100));
  EXPECT_EQ(ResolveCheckpoint(*files_, root_ + "/none").status().code(),
            absl::StatusCode::kNotFound);
  std::filesystem::remove(Folder(200) + "/manifest.json");
  EXPECT_EQ(ResolveCheckpoint(*files_, Folder(200)).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ResolveCheckpoint(*files_, root_).status().code(), absl::StatusCode::kDataLoss)
      << "it was whole when `latest` was written";
  EXPECT_EQ(*NamedByLatest(*files_, root_), Folder(200));
  EXPECT_EQ(NamedByLatest(*files_, Folder(100)).status().code(), absl::StatusCode::kNotFound);
  // By hand, or by an earlier release.
  std::ofstream(root_ + "/latest") << "step-00000100\n";
  EXPECT_EQ(*ResolveCheckpoint(*files_, root_), Folder(100));
  for (const char* name : {"", "..", "../x", "/", "."}) {
    std::ofstream(root_ + "/latest") << name << "\n";
    const absl::Status status = ResolveCheckpoint(*files_, root_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_TRUE(absl::StrContains(status.message(), root_ + "/latest: names")) << status;
  }
}

TEST_F(ManifestFile, IsNotCommittedOverFilesThatAreNotWhole) {
  const ModelForTest model(1);
  ASSERT_TRUE(WriteCheckpointForTest(*files_, Folder(100), model, 2, 1).ok());
  auto manifest = ReadManifest(*files_, Folder(100));
  ASSERT_TRUE(manifest.ok());
  std::filesystem::rename(Folder(100), Folder(200));
  std::filesystem::remove(Folder(200) + "/manifest.json");
  std::filesystem::resize_file(Folder(200) + "/shard-1.safetensors", 99);
  absl::Status status = CommitCheckpoint(*files_, Folder(200), *manifest);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(absl::StrContains(status.message(), "shard-1.safetensors")) << status;
  std::filesystem::remove(Folder(200) + "/shard-1.safetensors");
  status = CommitCheckpoint(*files_, Folder(200), *manifest);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(Folder(200) + "/manifest.json"));
}

TEST(Manifest, WhatMakesNoSenseIsRefused) {
  const ModelForTest model(1);
  Manifest good = model.manifest;
  good.set_format(1);
  CheckpointFile& file = *good.add_files();
  file.set_name("shard-0.safetensors");
  file.set_crc32("0123abcd");
  // A header of 8 bytes and two blocks; any sums do that fit each other.
  CheckpointFile& blocks = *good.add_files();
  blocks.set_name("shard-1.safetensors");
  blocks.set_bytes(108);
  blocks.set_header_bytes(8);
  blocks.set_block_bytes(100);
  blocks.set_block_crc32s("0000000a0000000b");
  blocks.set_crc32(Crc32Text(CombineCrc32(0xa, 0xb, 100)));
  ASSERT_TRUE(CheckManifest(good).ok()) << CheckManifest(good);
  blocks.set_bytes(207);
  blocks.set_block_crc32s("0000000a0000000b0000000c");
  blocks.set_crc32(Crc32Text(CombineCrc32(CombineCrc32(0xa, 0xb, 100), 0xc, 99)));
  ASSERT_TRUE(CheckManifest(good).ok()) << CheckManifest(good);
  const std::vector<std::function<void(Manifest&)>> table = {
      [](Manifest& m) { m.set_format(3); },
      [](Manifest& m) { m.set_format(0); },
      [](Manifest& m) { m.mutable_tensors(1)->set_name(m.tensors(0).name()); },
      [](Manifest& m) { m.mutable_tensors(1)->set_name(""); },
      [](Manifest& m) { m.mutable_tensors(1)->set_dtype(DATA_TYPE_UNSPECIFIED); },
      [](Manifest& m) { m.mutable_tensors(0)->set_shape(0, -1); },
      [](Manifest& m) { m.mutable_tensors(0)->set_shape(0, int64_t{1} << 62); },
      [](Manifest& m) { *m.add_files() = m.files(0); },
      [](Manifest& m) { m.mutable_files(0)->set_name(""); },
      [](Manifest& m) { m.mutable_files(0)->set_name(".."); },
      [](Manifest& m) { m.mutable_files(0)->set_name("../../etc/passwd"); },
      [](Manifest& m) { m.mutable_files(0)->set_name("/etc/passwd"); },
      [](Manifest& m) { m.mutable_files(0)->set_crc32("0123abc"); },
      [](Manifest& m) { m.mutable_files(0)->set_crc32("0123ABCD"); },
      [](Manifest& m) { m.mutable_files(1)->set_crc32("0123abcd"); },  // not that of its blocks
      [](Manifest& m) { m.mutable_files(1)->set_block_crc32s("0000000000000000"); },
      [](Manifest& m) { m.mutable_files(1)->set_block_crc32s("00000000000000000000000"); },
      [](Manifest& m) { m.mutable_files(1)->set_block_crc32s("00000000000000000000000 "); },
      [](Manifest& m) { m.mutable_files(1)->mutable_block_crc32s()->append("00000000"); },
      [](Manifest& m) { m.mutable_files(1)->clear_block_crc32s(); },
      [](Manifest& m) { m.mutable_files(1)->set_bytes(208); },
      [](Manifest& m) { m.mutable_files(1)->set_bytes(~uint64_t{0}); },
      [](Manifest& m) { m.mutable_files(1)->set_bytes(7); },
      [](Manifest& m) { m.mutable_files(1)->clear_header_bytes(); },
      [](Manifest& m) { m.mutable_files(1)->set_header_bytes(~uint64_t{0}); },
      [](Manifest& m) { m.mutable_files(1)->clear_block_bytes(); },
      [](Manifest& m) { m.mutable_files(1)->set_block_bytes(~uint64_t{0}); },
      [](Manifest& m) {
        m.mutable_files(1)->set_bytes(~uint64_t{0});
        m.mutable_files(1)->set_block_bytes(uint64_t{1} << 63);
      },
  };
  for (size_t i = 0; i < table.size(); ++i) {
    Manifest wrong = good;
    table[i](wrong);
    EXPECT_EQ(CheckManifest(wrong).code(), absl::StatusCode::kInvalidArgument) << i;
  }
}

TEST(Manifest, WhateverByteIsChangedItSaysTheSameOrIsRefused) {
  const ModelForTest model(1);
  const auto json = FormatManifest(model.manifest);
  ASSERT_TRUE(json.ok()) << json.status();
  const auto whole = ParseManifest(*json);
  ASSERT_TRUE(whole.ok()) << whole.status();
  const std::string said = whole->DebugString();
  const size_t end = json->find_last_of('}');
  for (size_t size = 0; size < end; ++size) {
    EXPECT_EQ(ParseManifest(std::string_view(*json).substr(0, size)).status().code(),
              absl::StatusCode::kDataLoss)
        << size;
  }
  uint64_t harmless = 0;
  for (size_t at = 0; at < json->size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = *json;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      const auto parsed = ParseManifest(damaged);
      if (!parsed.ok()) {
        // The name of a field may be a later release's.
        const bool may_be = absl::IsInvalidArgument(parsed.status()) && IsOfAName(*json, at);
        ASSERT_TRUE(may_be || absl::IsDataLoss(parsed.status()))
            << "byte " << at << ", bit " << bit << ": " << parsed.status();
        continue;
      }
      ++harmless;
      ASSERT_EQ(parsed->DebugString(), said) << "byte " << at << ", bit " << bit;
    }
  }
  EXPECT_LT(harmless, json->size()) << "white space, and digits that change nothing";
  for (const std::string& text :
       {std::string(100000, '['), std::string(R"({"format":2,"colour":"red"})"), std::string("{}"),
        std::string(R"({"format":1,"files":[{"name":".."}]})")}) {
    EXPECT_EQ(ParseManifest(text).status().code(), absl::StatusCode::kDataLoss)
        << text.substr(0, 80);
  }
}

// It is whole, for whoever can read it: nobody is to turn to an older one in its place.
TEST(Manifest, OfALaterReleaseIsNoDamage) {
  for (const char* text :
       {R"({"format":3,"step":"7"})", R"({"format":3,"step":"7","crc32":"01234567"})",
        R"({"format":3,"step":"7","colour":"red","crc32":"01234567"})"}) {
    const absl::Status status = ParseManifest(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_TRUE(absl::StrContains(status.message(), "format 3 is unknown")) << status;
  }
}

// A job's settings come without another format.
TEST(Manifest, OfALaterReleaseWithFieldsThatAreUnknownHereIsNoDamage) {
  const ModelForTest model(1);
  const auto json = FormatManifest(model.manifest);
  ASSERT_TRUE(json.ok()) << json.status();
  const auto with = [&](const std::string& old, const std::string& now) {
    std::string text = *json;
    text.replace(text.find(old), old.size(), now);
    return text;
  };
  const std::string sum = ParseManifest(*json)->crc32();
  // Its sum is of what is unknown here, too.
  std::string later = with("\"adam\": {", "\"adam\": { \"warmth\": 3,");
  later.replace(later.find(sum), sum.size(), "0123abcd");
  std::string value = with("\"F32\"", "\"F31\"");
  for (const std::string& text : {later, value, with("\"seed\"", "\"sead\"")}) {
    const absl::Status status = ParseManifest(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "of a later release, or damaged")) << status;
  }
  // Cut, without its sum, or with the sum of what is known here.
  const std::string same = with("\"adam\": {", "\"adam\": { \"warmth\": 3,");
  for (const std::string& text : {later.substr(0, later.size() - 3), same,
                                  with("\"crc32\"", "\"crc31\""), with("\"format\"", "\"norm\"")}) {
    EXPECT_EQ(ParseManifest(text).status().code(), absl::StatusCode::kDataLoss) << text;
  }
}

TEST(Manifest, OfAnEarlierReleaseNeedsNoSumButAWrongOneCounts) {
  const auto code = [](const std::string& json) { return ParseManifest(json).status().code(); };
  EXPECT_EQ(code(R"({"format":1,"step":"7"})"), absl::StatusCode::kOk);
  EXPECT_EQ(code(R"({"format":1,"step":"7","crc32":"00000000"})"), absl::StatusCode::kDataLoss);
  EXPECT_EQ(code(R"({"format":2,"step":"7"})"), absl::StatusCode::kDataLoss);
  EXPECT_EQ(code(R"({"format":3,"step":"7"})"), absl::StatusCode::kInvalidArgument);
  Manifest manifest;
  manifest.set_step(7);
  auto json = FormatManifest(manifest);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(code(*json), absl::StatusCode::kOk);
  // The sum is of what it says, not of how it is written.
  json->erase(std::remove_if(json->begin(), json->end(), absl::ascii_isspace), json->end());
  EXPECT_EQ(code(*json), absl::StatusCode::kOk);
  const size_t seven = json->find('7');
  (*json)[seven] = '8';
  const absl::Status changed = ParseManifest(*json).status();
  EXPECT_EQ(changed.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(absl::StrContains(changed.message(), "CRC-32")) << changed;
}

// Found by tests/fuzz: the sum was of -0, and a reader got 0.
TEST(Manifest, AJobWithANegativeZeroHasACheckpointToo) {
  Manifest manifest;
  manifest.mutable_job()->mutable_optimizer()->mutable_adam()->set_epsilon(-0.0);
  const auto json = FormatManifest(manifest);
  ASSERT_TRUE(json.ok()) << json.status();
  const auto back = ParseManifest(*json);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->job().optimizer().adam().epsilon(), 0);
}

TEST(Manifest, WhatCouldNotBeReadBackIsNotWritten) {
  Manifest manifest;
  manifest.set_job_name("\xff\xfe");
  EXPECT_EQ(FormatManifest(manifest).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace parley
