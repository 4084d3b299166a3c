#include "server/coordinator/checkpoint_files.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/checkpoint/checkpoint_for_test.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/names.h"

namespace parley {
namespace {

class CheckpointFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/parley-checkpoints-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    path_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(path_); }

  // A whole checkpoint of a tensor without any care for its content.
  absl::Status Write(uint64_t step) {
    Manifest manifest;
    manifest.set_job_name("digits");
    manifest.set_step(step);
    TensorSpec* tensor = manifest.add_tensors();
    tensor->set_name("w");
    tensor->set_dtype(F32);
    CheckpointPlan plan;
    FileWork begin = plan.Begin(path_, 1, manifest, absl::UnixEpoch());
    if (absl::Status status = Perform(*files_, begin); !status.ok()) return status;
    plan.FolderIsThere();
    if (absl::Status status =
            WriteFileAtomically(*files_, begin.folder + "/shard-0.safetensors", "data");
        !status.ok()) {
      return status;
    }
    ReportCheckpointFileRequest report;
    report.set_step(step);
    report.mutable_file()->set_name("shard-0.safetensors");
    report.mutable_file()->set_bytes(4);
    report.mutable_file()->set_crc32("00000000");
    if (absl::Status status = plan.Add(Member(), report); !status.ok()) return status;
    FileWork commit = *plan.CommitIfComplete();
    return Perform(*files_, commit);
  }

  const std::unique_ptr<FileSystem> files_ = PosixFileSystem();
  std::string path_;
};

TEST_F(CheckpointFilesTest, ACommittedCheckpointIsThereToStartFrom) {
  const absl::Status written = Write(12);
  ASSERT_TRUE(written.ok()) << written;
  for (const std::string& from : {path_, path_ + "/step-00000012"}) {
    const auto start = LoadStart(*files_, from);
    ASSERT_TRUE(start.ok()) << start.status();
    EXPECT_EQ(start->manifest.step(), 12u);
    EXPECT_EQ(std::filesystem::path(start->folder).filename(), "step-00000012");
  }
  EXPECT_EQ(Write(12).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_FALSE(LoadStart(*files_, path_ + "/nowhere").ok());
}

TEST_F(CheckpointFilesTest, AnEarlierRunIsNotOverwritten) {
  EXPECT_TRUE(CheckNoEarlierRun(*files_, path_ + "/nowhere", std::nullopt).ok());
  EXPECT_TRUE(CheckNoEarlierRun(*files_, path_, std::nullopt).ok());
  // What has no manifest is no checkpoint.
  ASSERT_TRUE(files_->CreateDirectories(path_ + "/step-00000003").ok());
  EXPECT_TRUE(CheckNoEarlierRun(*files_, path_, std::nullopt).ok());

  ASSERT_TRUE(Write(12).ok());
  const absl::Status refused = CheckNoEarlierRun(*files_, path_, std::nullopt);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.message().find("start_from"), absl::string_view::npos) << refused;
  const auto start = LoadStart(*files_, path_);
  EXPECT_TRUE(CheckNoEarlierRun(*files_, path_, *start).ok());

  ASSERT_TRUE(Write(20).ok());
  const absl::Status later = CheckNoEarlierRun(*files_, path_, *start);
  EXPECT_EQ(later.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(later.message().find("step-00000020"), absl::string_view::npos) << later;
}

TEST_F(CheckpointFilesTest, ThePreviousOneIsTheNewestThatIsNotDamagedItself) {
  const auto folder = [&](uint64_t step) { return path_ + "/" + StepFolderName(step); };
  for (const uint64_t step : {10, 20, 30, 40}) {
    ModelForTest model(1);
    model.manifest.set_step(step);
    const auto written = WriteCheckpointForTest(*files_, folder(step), model, 2, 3);
    ASSERT_TRUE(written.ok()) << written;
  }
  std::filesystem::resize_file(folder(20) + "/shard-1.safetensors", 100);
  using Folders = std::set<std::string>;
  for (const std::string& from : {folder(30), folder(30) + "/", folder(20)}) {
    const auto previous = LoadPrevious(*files_, from);
    ASSERT_TRUE(previous.ok()) << previous.status();
    EXPECT_EQ(previous->folder, folder(10));
    EXPECT_EQ(previous->manifest.step(), 10u);
    EXPECT_EQ(previous->damaged,
              from == folder(20) ? Folders{folder(20)} : Folders({folder(20), folder(30)}));
  }
  // A folder of checkpoints: before the one that `latest` names, or where that is damaged the
  // newest one.
  EXPECT_EQ(LoadPrevious(*files_, path_)->folder, folder(30));
  ASSERT_TRUE(WriteFileAtomically(*files_, path_ + "/latest", "step-000").ok());
  EXPECT_EQ(LoadPrevious(*files_, path_)->folder, folder(40));
  EXPECT_EQ(LoadPrevious(*files_, path_)->damaged, Folders());
  EXPECT_EQ(LoadPrevious(*files_, path_ + "/")->folder, folder(40));
  EXPECT_EQ(LoadPrevious(*files_, folder(10)).status().code(), absl::StatusCode::kNotFound);
  // It names one that is lost: not one of a later step in its place.
  ASSERT_TRUE(WriteFileAtomically(*files_, path_ + "/latest", "step-00000030\n").ok());
  std::filesystem::remove(folder(30) + "/manifest.json");
  EXPECT_EQ(LoadPrevious(*files_, path_)->folder, folder(10));
}

TEST_F(CheckpointFilesTest, OnlyADamagedOneIsPassedOverForGood) {
  const auto folder = [&](uint64_t step) { return path_ + "/" + StepFolderName(step); };
  for (const uint64_t step : {10, 20, 30, 40}) {
    ModelForTest model(1);
    model.manifest.set_step(step);
    const auto written = WriteCheckpointForTest(*files_, folder(step), model, 2, 3);
    ASSERT_TRUE(written.ok()) << written;
  }
  const auto write = [&](uint64_t step, const std::string& manifest) {
    ASSERT_TRUE(WriteFileAtomically(*files_, folder(step) + "/manifest.json", manifest).ok());
  };
  write(20, R"({"format": 99, "step": "20"})");  // of a later release
  write(30, R"({"format": 2, "step": "30")");
  FileWork work;
  work.kind = FileWork::Kind::kFindPrevious;
  work.folder = folder(40);
  ASSERT_EQ(Perform(*files_, work), absl::OkStatus());
  EXPECT_EQ(work.folder, folder(10));
  EXPECT_EQ(work.passed_over, std::set<std::string>({folder(30), folder(40)}));
}

TEST_F(CheckpointFilesTest, ADamagedOneIsNoEarlierRunAndMakesRoom) {
  ASSERT_TRUE(Write(12).ok());
  auto start = LoadStart(*files_, path_);
  ASSERT_TRUE(start.ok());
  ASSERT_TRUE(Write(20).ok());
  EXPECT_FALSE(CheckNoEarlierRun(*files_, path_, *start).ok());
  ASSERT_TRUE(Write(30).ok());
  start->damaged = {path_ + "/step-00000020"};
  EXPECT_FALSE(CheckNoEarlierRun(*files_, path_, *start).ok()) << "there is another one";
  start->damaged.insert(path_ + "/step-00000030");
  EXPECT_TRUE(CheckNoEarlierRun(*files_, path_, *start).ok());
  FileWork begin;
  begin.folder = path_ + "/step-00000020";
  EXPECT_EQ(Perform(*files_, begin).code(), absl::StatusCode::kAlreadyExists);
  begin.damaged = true;
  EXPECT_EQ(Perform(*files_, begin), absl::OkStatus());
  EXPECT_EQ(files_->List(begin.folder)->size(), 0u);
}

std::vector<std::string> FoldersIn(FileSystem& files, const std::string& path) {
  std::vector<std::string> folders;
  const auto names = files.List(path);
  EXPECT_TRUE(names.ok()) << names.status();
  for (const std::string& name : *names) {
    if (name != "latest") folders.push_back(name);
  }
  return folders;
}

TEST_F(CheckpointFilesTest, OldOnesGo) {
  for (const uint64_t step : {10, 20, 30, 40, 50}) ASSERT_TRUE(Write(step).ok());
  // Given up before the newest whole one; begun after it; somebody's own.
  ASSERT_TRUE(files_->CreateDirectories(path_ + "/step-00000025").ok());
  ASSERT_TRUE(WriteFileAtomically(*files_, path_ + "/step-00000025/shard-0.safetensors", "x").ok());
  ASSERT_TRUE(files_->CreateDirectories(path_ + "/step-00000060").ok());
  ASSERT_TRUE(files_->CreateDirectories(path_ + "/step-by-step").ok());
  ASSERT_TRUE(WriteFileAtomically(*files_, path_ + "/step-00000020/notes.txt", "keep me").ok());

  FileWork work;
  work.kind = FileWork::Kind::kRemoveOld;
  work.folder = path_;
  EXPECT_TRUE(Perform(*files_, work).ok());
  EXPECT_EQ(
      FoldersIn(*files_, path_),
      (std::vector<std::string>{"step-00000010", "step-00000020", "step-00000030", "step-00000040",
                                "step-00000050", "step-00000060", "step-by-step"}))
      << "0 keeps all that is whole";

  work.keep.last = 2;
  work.keep.every_steps = 30;
  work.keep.in_use = {path_ + "/step-00000010"};
  const absl::Status removed = Perform(*files_, work);
  EXPECT_FALSE(removed.ok()) << "of step 20 somebody's file is left";
  EXPECT_EQ(
      FoldersIn(*files_, path_),
      (std::vector<std::string>{"step-00000010", "step-00000020", "step-00000030", "step-00000040",
                                "step-00000050", "step-00000060", "step-by-step"}));
  EXPECT_EQ(FoldersIn(*files_, path_ + "/step-00000020"), std::vector<std::string>{"notes.txt"});
  ASSERT_TRUE(files_->Remove(path_ + "/step-00000020/notes.txt").ok());
  EXPECT_TRUE(Perform(*files_, work).ok());
  EXPECT_EQ(FoldersIn(*files_, path_),
            (std::vector<std::string>{"step-00000010", "step-00000030", "step-00000040",
                                      "step-00000050", "step-00000060", "step-by-step"}));
  const auto start = LoadStart(*files_, path_);
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_EQ(start->manifest.step(), 50u);
}

// Names are in another order than steps.
TEST_F(CheckpointFilesTest, FromAHundredMillionStepsOnTheNewestIsTheNewestToo) {
  for (const uint64_t step : {99'999'998, 99'999'999, 100'000'000}) {
    ASSERT_TRUE(Write(step).ok());
  }
  FileWork work;
  work.kind = FileWork::Kind::kRemoveOld;
  work.folder = path_;
  work.keep.last = 2;
  EXPECT_TRUE(Perform(*files_, work).ok());
  EXPECT_EQ(FoldersIn(*files_, path_),
            (std::vector<std::string>{"step-100000000", "step-99999999"}));
  const auto start = LoadStart(*files_, path_ + "/step-99999999");
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_EQ(CheckNoEarlierRun(*files_, path_, *start).code(), absl::StatusCode::kFailedPrecondition)
      << "step 100000000 is later";
}

TEST_F(CheckpointFilesTest, ADamagedOneOfALaterStepTakesNobodysPlace) {
  for (const uint64_t step : {150, 170, 200, 300}) ASSERT_TRUE(Write(step).ok());
  FileWork work;
  work.kind = FileWork::Kind::kRemoveOld;
  work.folder = path_;
  work.keep.last = 1;
  work.keep.in_use = {path_ + "/step-00000150", path_ + "/step-00000170"};
  work.keep.damaged = {path_ + "/step-00000200", path_ + "/step-00000300"};
  EXPECT_TRUE(Perform(*files_, work).ok());
  EXPECT_EQ(FoldersIn(*files_, path_),
            (std::vector<std::string>{"step-00000150", "step-00000170", "step-00000200",
                                      "step-00000300"}));
  // What nobody knows to be damaged may stand in its place, but does not make it go.
  work.keep.damaged.clear();
  EXPECT_TRUE(Perform(*files_, work).ok());
  EXPECT_EQ(FoldersIn(*files_, path_),
            (std::vector<std::string>{"step-00000150", "step-00000170", "step-00000300"}));
}

TEST_F(CheckpointFilesTest, WhatIsLeftOfOneThatWasGivenUpGoes) {
  FileWork work;
  work.kind = FileWork::Kind::kAbandon;
  work.folder = path_ + "/step-00000030";
  work.files = {"shard-0.safetensors", "shard-1.safetensors"};
  EXPECT_TRUE(Perform(*files_, work).ok()) << "not even begun";
  ASSERT_TRUE(files_->CreateDirectories(work.folder).ok());
  ASSERT_TRUE(WriteFileAtomically(*files_, work.folder + "/shard-1.safetensors", "x").ok());
  EXPECT_TRUE(Perform(*files_, work).ok());
  EXPECT_FALSE(files_->Exists(work.folder));
  // One that is whole after all stays.
  ASSERT_TRUE(Write(30).ok());
  EXPECT_TRUE(Perform(*files_, work).ok());
  EXPECT_TRUE(LoadStart(*files_, work.folder).ok());
  work.damaged = true;
  EXPECT_TRUE(Perform(*files_, work).ok());
  EXPECT_FALSE(files_->Exists(work.folder));
}

TEST_F(CheckpointFilesTest, OneWhoseNameCouldNotBeWrittenIsNamedLater) {
  ASSERT_TRUE(Write(20).ok());
  std::filesystem::rename(path_ + "/latest", path_ + "/away");
  ASSERT_TRUE(files_->CreateDirectories(path_ + "/latest").ok());
  ASSERT_FALSE(Write(30).ok()) << "nothing can be renamed to a folder";
  FileWork work;
  work.kind = FileWork::Kind::kAbandon;
  work.folder = path_ + "/step-00000030";
  work.files = {"shard-0.safetensors"};
  work.manifest.set_step(30);
  EXPECT_FALSE(Perform(*files_, work).ok());
  EXPECT_FALSE(work.committed);
  EXPECT_TRUE(LoadStart(*files_, work.folder).ok()) << "a job may be resumed from it all the same";
  std::filesystem::remove(path_ + "/latest");
  std::filesystem::rename(path_ + "/away", path_ + "/latest");
  FileWork begun = work;  // another one's, where this one was to be begun
  begun.manifest.Clear();
  EXPECT_TRUE(Perform(*files_, begun).ok());
  EXPECT_FALSE(begun.committed);
  EXPECT_EQ(LoadStart(*files_, path_)->manifest.step(), 20u);
  EXPECT_TRUE(Perform(*files_, work).ok());
  EXPECT_TRUE(work.committed);
  EXPECT_EQ(LoadStart(*files_, path_)->manifest.step(), 30u);
}

// A job that is resumed then finds the one before, or that there is none.
TEST_F(CheckpointFilesTest, OneThatIsRevokedIsNotTheLatestAnyMore) {
  FileWork revoke;
  revoke.kind = FileWork::Kind::kAbandon;
  revoke.damaged = true;
  for (const uint64_t step : {10, 20, 30}) ASSERT_TRUE(Write(step).ok());
  for (const char* name : {"/step-00000010", "/step-00000030"}) {
    revoke.folder = path_ + name;
    EXPECT_TRUE(Perform(*files_, revoke).ok());
    const auto start = LoadStart(*files_, path_);
    ASSERT_TRUE(start.ok()) << start.status();
    EXPECT_EQ(start->manifest.step(), name[12] == '1' ? 30 : 20);
  }
  revoke.folder = path_ + "/step-00000020";
  EXPECT_TRUE(Perform(*files_, revoke).ok());
  EXPECT_TRUE(absl::IsNotFound(LoadStart(*files_, path_).status()));
}

}  // namespace
}  // namespace parley
