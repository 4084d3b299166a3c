#include "server/coordinator/job_start.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/names.h"
#include "common/safetensors/writer.h"
#include "server/coordinator/job_log.h"

namespace parley {
namespace {

class JobStartTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/parley-start-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    path_ = name;
    job_.set_name("digits");
    job_.mutable_checkpoint()->set_directory("checkpoints");
    job_.mutable_checkpoint()->set_at_end(true);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }

  // As a job that has ended leaves its directory.
  std::string FinishedRun(const std::string& name, uint64_t step) {
    const std::string directory = path_ + "/" + name;
    const std::string folder = directory + "/checkpoints/" + StepFolderName(step);
    std::filesystem::create_directories(folder);
    Manifest manifest;
    manifest.set_job_name("digits");
    manifest.set_step(step);
    EXPECT_TRUE(CommitCheckpoint(*files_, folder, manifest).ok());
    EXPECT_TRUE(WriteFileAtomically(*files_, directory + "/job.textproto", "the job").ok());
    return directory;
  }

  // That the checkpoint of step 45 is damaged, and that of step 30 beside it is not.
  void ExpectOfferOf30(const std::string& directory) {
    job_.mutable_checkpoint()->set_use_previous_if_damaged(false);
    const absl::Status status = Check(directory).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "step-00000045")) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "step-00000030, is of step 30")) << status;
    job_.mutable_checkpoint()->set_use_previous_if_damaged(true);
    const auto turned = Check(directory);
    ASSERT_TRUE(turned.ok()) << turned.status();
    EXPECT_EQ(turned->from->manifest.step(), 30u);
  }

  // A coordinator answers at `living`, and nobody anywhere else.
  absl::StatusOr<JobStart> Check(const std::string& directory, const std::string& living = "") {
    std::map<std::string, std::filesystem::file_time_type> before = Files();
    auto start = CheckNewRun(*files_, job_, directory, mode_, [&](const std::string& address) {
      return address == living ? absl::OkStatus() : absl::UnavailableError("connection refused");
    });
    EXPECT_EQ(Files(), before) << "it writes nothing";
    return start;
  }

  std::map<std::string, std::filesystem::file_time_type> Files() const {
    std::map<std::string, std::filesystem::file_time_type> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path_)) {
      files[entry.path().string()] = entry.last_write_time();
    }
    return files;
  }

  const std::unique_ptr<FileSystem> files_ = PosixFileSystem();
  std::string path_;
  JobConfig job_;
  NewRunMode mode_;
};

TEST_F(JobStartTest, AJobMayStartInAFreshDirectory) {
  const auto start = Check(path_ + "/new");
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_EQ(start->checkpoint_directory, path_ + "/new/checkpoints");
  EXPECT_FALSE(start->from.has_value());
}

TEST_F(JobStartTest, TheDirectoryOfARunningJobIsRefusedWithItsAddress) {
  ASSERT_TRUE(WriteFileAtomically(*files_, path_ + "/coordinator.address", "127.0.0.1:7\n").ok());
  const absl::Status status = Check(path_, "127.0.0.1:7").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(absl::StrContains(status.message(), "127.0.0.1:7")) << status;
  EXPECT_TRUE(Check(path_).ok()) << "it has gone and left its address";
}

TEST_F(JobStartTest, TheDirectoryOfAJobThatHasNotEndedIsRefusedWithWhatToDo) {
  auto log = JobLog::Open(*files_, path_ + "/log", "digits");
  ASSERT_TRUE(log.ok());
  CoordinatorState state;
  state.set_phase(TRAINING);
  ASSERT_TRUE(log->Take("127.0.0.1:8", state, absl::UnixEpoch()).ok());
  EXPECT_EQ(Check(path_, "127.0.0.1:8").status().code(), absl::StatusCode::kAlreadyExists)
      << "it answers, although no file names it yet";
  const std::string name = std::exchange(*job_.mutable_name(), "another");
  ASSERT_TRUE(WriteFileAtomically(*files_, path_ + "/coordinator.address", "127.0.0.1:8\n").ok());
  EXPECT_EQ(Check(path_, "127.0.0.1:8").status().code(), absl::StatusCode::kAlreadyExists)
      << "also for another job";
  EXPECT_EQ(Check(path_).status().code(), absl::StatusCode::kInvalidArgument);
  job_.set_name(name);
  const absl::Status status = Check(path_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(status.message(), "TRAINING")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "add --anew")) << status;
  EXPECT_TRUE(CheckJobStart(*files_, job_, path_, {.goes_on = true}).ok());
  state.set_phase(FAILED);
  state.set_over(true);
  ASSERT_TRUE(log->Append(state, absl::UnixEpoch()).ok());
  EXPECT_TRUE(Check(path_).ok());
}

TEST_F(JobStartTest, ARunThatHasNotEndedIsOverWhereOneBeginsAnew) {
  auto old = JobLog::Open(*files_, path_ + "/log", "digits");
  ASSERT_TRUE(old.ok());
  CoordinatorState state;
  state.set_phase(TRAINING);
  state.set_wanted_workers(3);
  ASSERT_TRUE(old->Take("127.0.0.1:8", state, absl::UnixEpoch()).ok());
  ASSERT_TRUE(WriteFileAtomically(*files_, path_ + "/coordinator.address", "127.0.0.1:8\n").ok());
  mode_.anew = true;
  EXPECT_EQ(Check(path_, "127.0.0.1:8").status().code(), absl::StatusCode::kAlreadyExists)
      << "it is not gone";
  ASSERT_TRUE(Check(path_).ok());
  ASSERT_TRUE(EndEarlierRun(*files_, job_, path_, absl::UnixEpoch()).ok());
  EXPECT_FALSE(files_->Exists(path_ + "/coordinator.address")) << "members would ask there";
  EXPECT_EQ(old->Append(state, absl::UnixEpoch()).code(), absl::StatusCode::kAborted)
      << "it lives after all, and rules no more";
  const auto log = JobLog::Open(*files_, path_ + "/log", "digits");
  ASSERT_TRUE(log.ok());
  EXPECT_TRUE(log->last()->state().over());
  EXPECT_EQ(log->last()->state().wanted_workers(), 3u);
  EXPECT_EQ(log->last()->generation(), 2u);
  ASSERT_TRUE(EndEarlierRun(*files_, job_, path_, absl::UnixEpoch()).ok());
  EXPECT_EQ(JobLog::Open(*files_, path_ + "/log", "digits")->last()->generation(), 2u)
      << "what has ended is left as it is";
  EXPECT_TRUE(EndEarlierRun(*files_, job_, path_ + "/new", absl::UnixEpoch()).ok());
}

TEST_F(JobStartTest, TheDirectoryOfAFinishedJobIsRefusedUnlessItGoesOnFromThere) {
  const std::string first = FinishedRun("first", 30);
  const absl::Status status = Check(first).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(status.message(), "step-00000030")) << status;

  job_.mutable_checkpoint()->set_start_from(first + "/checkpoints");
  const auto goes_on = Check(first);
  ASSERT_TRUE(goes_on.ok()) << goes_on.status();
  EXPECT_EQ(goes_on->from->manifest.step(), 30u);
  EXPECT_TRUE(Check(path_ + "/second").ok()) << "or elsewhere";
  job_.mutable_checkpoint()->clear_start_from();
  EXPECT_TRUE(CheckJobStart(*files_, job_, first, {.goes_on = true}).ok()) << "or it is its own";
}

TEST_F(JobStartTest, OneThatHasStartedNeedsItsStartNoMore) {
  job_.mutable_checkpoint()->set_start_from(path_ + "/gone");
  EXPECT_EQ(CheckJobStart(*files_, job_, path_, {.goes_on = true}).status().code(),
            absl::StatusCode::kInvalidArgument)
      << "it is still to start";
  const std::string first = FinishedRun("first", 30);
  for (const bool resume : {false, true}) {
    const auto start = CheckJobStart(*files_, job_, first,
                                     {.goes_on = true, .has_started = true, .resume = resume});
    ASSERT_TRUE(start.ok()) << start.status();
    EXPECT_EQ(start->checkpoint_directory, first + "/checkpoints");
    EXPECT_FALSE(start->from.has_value());
  }
}

TEST_F(JobStartTest, AResumedJobStartsFromItsNewestCheckpoint) {
  mode_.resume = true;
  EXPECT_FALSE(Check(path_ + "/new")->from.has_value()) << "of none from the beginning";
  const std::string first = FinishedRun("first", 30);
  FinishedRun("first", 45);
  job_.mutable_checkpoint()->set_start_from(FinishedRun("other", 7) + "/checkpoints");
  EXPECT_EQ(Check(path_ + "/new")->from->manifest.step(), 7u) << "or as the job says";
  const auto resumed = Check(first);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_EQ(resumed->from->manifest.step(), 45u);
  EXPECT_EQ(
      CheckJobStart(*files_, job_, first, {.goes_on = true, .resume = true})->from->manifest.step(),
      45u)
      << "one that takes over before it has begun, too";
}

// The disk was full, or a crash came, after the manifest was there and before `latest` named it.
TEST_F(JobStartTest, AResumedJobStartsFromOneThatLatestDoesNotName) {
  mode_.resume = true;
  const std::string first = FinishedRun("first", 30);
  FinishedRun("first", 45);
  const std::string checkpoints = first + "/checkpoints";
  ASSERT_TRUE(NameInLatest(*files_, checkpoints + "/" + StepFolderName(30)).ok());
  const auto resumed = Check(first);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_EQ(resumed->from->manifest.step(), 45u);
  EXPECT_EQ(resumed->from->folder, checkpoints + "/" + StepFolderName(45));
  // By hand, as docs/checkpoints.md says: then it is meant.
  ASSERT_TRUE(
      WriteFileAtomically(*files_, checkpoints + "/latest", StepFolderName(30) + "\n").ok());
  EXPECT_EQ(Check(first).status().code(), absl::StatusCode::kFailedPrecondition);
  std::filesystem::create_directories(checkpoints + "/" + StepFolderName(60));
  ASSERT_TRUE(RemoveLatest(*files_, checkpoints).ok());
  const auto unnamed = Check(first);
  ASSERT_TRUE(unnamed.ok()) << unnamed.status();
  EXPECT_EQ(unnamed->from->manifest.step(), 45u);
}

TEST_F(JobStartTest, AResumedJobWhoseNewestCheckpointIsDamagedSaysSo) {
  mode_.resume = true;
  const std::string first = FinishedRun("first", 30);
  FinishedRun("first", 45);
  const std::string manifest = first + "/checkpoints/" + StepFolderName(45) + "/manifest.json";
  std::string text = *ReadWholeFile(*files_, manifest);
  text.replace(text.find("digits"), 6, "digitS");
  ASSERT_TRUE(WriteFileAtomically(*files_, manifest, text).ok());
  EXPECT_FALSE(Check(first).ok());
  job_.mutable_checkpoint()->set_use_previous_if_damaged(true);
  const auto resumed = Check(first);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_EQ(resumed->from->manifest.step(), 30u);
}

TEST_F(JobStartTest, SoItDoesWhereTheManifestCannotBeReadOrIsLost) {
  mode_.resume = true;
  const std::string first = FinishedRun("first", 30);
  FinishedRun("first", 45);
  const std::string manifest = first + "/checkpoints/" + StepFolderName(45) + "/manifest.json";
  const std::string text = *ReadWholeFile(*files_, manifest);
  for (const std::string& damaged : {text.substr(1), text.substr(0, 20), std::string()}) {
    SCOPED_TRACE(damaged.substr(0, 30));
    ASSERT_TRUE(WriteFileAtomically(*files_, manifest, damaged).ok());
    ExpectOfferOf30(first);
  }
  std::filesystem::remove(manifest);  // `latest` tells of it
  ExpectOfferOf30(first);
}

TEST_F(JobStartTest, OneOfALaterReleaseIsNoDamage) {
  mode_.resume = true;
  const std::string first = FinishedRun("first", 30);
  FinishedRun("first", 45);
  job_.mutable_checkpoint()->set_use_previous_if_damaged(true);
  const std::string manifest = first + "/checkpoints/" + StepFolderName(45) + "/manifest.json";
  std::string more = *ReadWholeFile(*files_, manifest);
  more.replace(more.find("job_name"), 8, "job_sort");
  for (const auto& [text, why] :
       {std::pair(std::string(R"({"format": 99, "step": "45"})"), "format 99 is unknown"),
        std::pair(more, "has fields unknown here")}) {
    ASSERT_TRUE(WriteFileAtomically(*files_, manifest, text).ok());
    const absl::Status status = Check(first).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(status.message(), why)) << status;
    EXPECT_FALSE(absl::StrContains(status.message(), "use_previous_if_damaged")) << status;
  }
}

TEST_F(JobStartTest, AResumedJobPassesOverAllThatAreDamaged) {
  mode_.resume = true;
  job_.mutable_checkpoint()->set_use_previous_if_damaged(true);
  const std::string first = FinishedRun("first", 30);
  for (const uint64_t step : {45, 60}) {
    FinishedRun("first", step);
    std::filesystem::resize_file(first + "/checkpoints/" + StepFolderName(step) + "/manifest.json",
                                 step);
  }
  const auto resumed = Check(first);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_EQ(resumed->from->manifest.step(), 30u);
  EXPECT_EQ(resumed->from->damaged.size(), 2u);
}

TEST_F(JobStartTest, WithoutACheckpointOfItsOwnAJobOverwritesNone) {
  job_.mutable_checkpoint()->set_at_end(false);
  EXPECT_TRUE(Check(FinishedRun("first", 30)).ok());
}

TEST_F(JobStartTest, WhatCannotBeStartedFromIsNamed) {
  job_.mutable_checkpoint()->set_start_from(path_ + "/nowhere");
  const absl::Status status = Check(path_ + "/new").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "checkpoint.start_from: ")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), path_ + "/nowhere")) << status;
  // What has no manifest never was one.
  FinishedRun("first", 30);
  const std::string never = path_ + "/first/checkpoints/" + StepFolderName(45);
  std::filesystem::create_directories(never);
  job_.mutable_checkpoint()->set_start_from(never);
  job_.mutable_checkpoint()->set_use_previous_if_damaged(true);
  const absl::Status none = Check(path_ + "/new").status();
  EXPECT_EQ(none.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(none.message(), never + ": is no checkpoint")) << none;
}

TEST_F(JobStartTest, WeightsAreNoEarlierRun) {
  const std::string path = path_ + "/model.safetensors";
  job_.mutable_checkpoint()->set_start_from(path);
  ASSERT_TRUE(WriteFileAtomically(*files_, path, "no header").ok());
  absl::Status status = Check(path_ + "/new").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "checkpoint.start_from: " + path)) << status;

  auto writer = SafetensorsWriter::Create(*files_, path, {});
  ASSERT_TRUE(writer.ok() && (*writer)->Finish().ok());
  auto start = Check(path_ + "/new");
  ASSERT_TRUE(start.ok()) << start.status();
  ASSERT_TRUE(start->from->weights.has_value());
  EXPECT_EQ(start->from->folder, path);
  EXPECT_FALSE(start->from->weights->ignore_unexpected);
  job_.mutable_checkpoint()->set_ignore_unexpected(true);
  EXPECT_TRUE(Check(path_ + "/new")->from->weights->ignore_unexpected);

  for (const uint64_t step : {0, 30}) {
    status = Check(FinishedRun(absl::StrCat("after-", step), step)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << step;
  }
}

TEST_F(JobStartTest, OfACheckpointNothingIsLeftOut) {
  job_.mutable_checkpoint()->set_start_from(FinishedRun("first", 30) + "/checkpoints");
  EXPECT_TRUE(Check(path_ + "/new").ok());
  job_.mutable_checkpoint()->set_ignore_unexpected(true);
  const absl::Status status = Check(path_ + "/new").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "checkpoint.ignore_unexpected: ")) << status;
}

}  // namespace
}  // namespace parley
