// A shard's end while it reads or writes a checkpoint: nobody waits for its disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/clock/steady_now.h"
#include "common/memory_file_system.h"
#include "common/safetensors/header.h"
#include "common/safetensors/writer.h"
#include "server/parameter_shard/shard_process_fixture.h"

namespace parley::testing {
namespace {

using ::testing::ElementsAre;

constexpr int kTensors = 30;
constexpr size_t kTensorBytes = 16;  // as no header has
constexpr char kFolder[] = "run/step-00000001";

// A disk on which something happens while a tensor is read or written. Thread-safe.
class EventfulFiles final : public FileSystem {
 public:
  // Called inside each read and write of a tensor, with its number from 1. Set before there are
  // any.
  std::function<void(int)> on_read = [](int) {};
  std::function<void(int)> on_append = [](int) {};
  int reads() const { return reads_; }
  int appends() const { return appends_; }

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    auto file = files_.Create(path);
    if (!file.ok()) return file.status();
    return std::make_unique<Writer>(*this, *std::move(file));
  }
  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path) override {
    auto file = files_.Open(path);
    if (!file.ok()) return file.status();
    return std::make_unique<Reader>(*this, *std::move(file));
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return files_.Rename(from, to);
  }
  absl::Status Link(const std::string& from, const std::string& to) override {
    return files_.Link(from, to);
  }
  absl::Status Remove(const std::string& path) override { return files_.Remove(path); }
  absl::Status RemoveDirectory(const std::string& path) override {
    return files_.RemoveDirectory(path);
  }
  absl::Status CreateDirectories(const std::string& path) override {
    return files_.CreateDirectories(path);
  }
  absl::Status SyncDirectory(const std::string& path) override {
    return files_.SyncDirectory(path);
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override {
    return files_.List(directory);
  }
  bool Exists(const std::string& path) override { return files_.Exists(path); }
  absl::StatusOr<FileInfo> Info(const std::string& path) override { return files_.Info(path); }

 private:
  class Writer final : public WritableFile {
   public:
    Writer(EventfulFiles& owner, std::unique_ptr<WritableFile> file)
        : owner_(owner), file_(std::move(file)) {}
    absl::Status Append(absl::Span<const std::byte> bytes) override {
      if (bytes.size() == kTensorBytes) owner_.on_append(++owner_.appends_);
      return file_->Append(bytes);
    }
    absl::Status Sync() override { return file_->Sync(); }
    absl::Status Close() override { return file_->Close(); }

   private:
    EventfulFiles& owner_;
    const std::unique_ptr<WritableFile> file_;
  };
  class Reader final : public ReadableFile {
   public:
    Reader(EventfulFiles& owner, std::unique_ptr<ReadableFile> file)
        : owner_(owner), file_(std::move(file)) {}
    uint64_t size() const override { return file_->size(); }
    absl::Status Read(uint64_t offset, absl::Span<std::byte> bytes) const override {
      if (bytes.size() == kTensorBytes) owner_.on_read(++owner_.reads_);
      return file_->Read(offset, bytes);
    }

   private:
    EventfulFiles& owner_;
    const std::unique_ptr<ReadableFile> file_;
  };

  MemoryFileSystem files_;
  std::atomic<int> reads_ = 0;
  std::atomic<int> appends_ = 0;
};

std::vector<TestTensor> Tensors() {
  std::vector<TestTensor> tensors;
  for (int i = 0; i < kTensors; ++i) tensors.push_back({absl::StrFormat("t%02d", i), 4});
  return tensors;
}

ClusterView ViewOfAll() { return MakeView({.tensors = Tensors()}); }

FirstCause Cause(bool preempted) {
  FirstCause cause;
  cause.set_text("what failed first");
  cause.set_member(1);
  cause.set_preempted(preempted);
  return cause;
}

InitializeRequest InitializeAll(const ClusterView& view) {
  InitializeRequest request;
  *request.mutable_header() = HeaderOf(view, 1);
  for (const Slice& slice : view.slices()) {
    SliceData& data = *request.add_slices();
    data.set_slice(slice.id());
    data.set_dtype(F32);
    data.set_data(BytesOf({0, 0, 0, 0}));
  }
  return request;
}

PushRequest PushAll(const ClusterView& view, uint64_t step) {
  PushRequest push;
  *push.mutable_header() = HeaderOf(view, 1);
  push.set_step(step);
  *push.mutable_slices() = InitializeAll(view).slices();
  return push;
}

CompleteRequest CompleteStep(const ClusterView& view, uint64_t step) {
  CompleteRequest request;
  *request.mutable_header() = HeaderOf(view, 1);
  request.set_step(step);
  request.mutable_share()->set_weight(1);
  return request;
}

WatchReply OrderOf(const ClusterView& view, const std::string& folder) {
  WatchReply state;
  state.set_phase(TRAINING);
  state.mutable_checkpoint()->set_step(1);
  state.mutable_checkpoint()->set_directory(folder);
  state.mutable_checkpoint()->set_job_epoch(view.job_epoch());
  return state;
}

// The view starts from a file of weights, which the main thread reads, one tensor after the other.
void StartFromWeights(FileSystem& files, ClusterView& view) {
  std::vector<TensorSpec> tensors(view.tensors().begin(), view.tensors().end());
  SortForSafetensors(tensors);
  auto writer = SafetensorsWriter::Create(files, "run/weights.safetensors", tensors);
  ASSERT_EQ(writer.status(), absl::OkStatus());
  const std::vector<std::byte> zeros(kTensorBytes * tensors.size());
  ASSERT_EQ((*writer)->Append(zeros), absl::OkStatus());
  ASSERT_EQ((*writer)->Finish().status(), absl::OkStatus());
  view.set_start_from("run/weights.safetensors");
}

class ShardDiskTest : public ShardProcessTest {
 protected:
  ShardDiskTest() : ShardProcessTest("25s", std::make_unique<EventfulFiles>()) {
    view_ = ViewOfAll();
    EXPECT_EQ(files().CreateDirectories(kFolder), absl::OkStatus());
  }
  EventfulFiles& files() { return static_cast<EventfulFiles&>(*files_); }

  void MakeWeights() { StartFromWeights(files(), view_); }
  void TrainAStep() {
    Join();
    TellView(view_);
    process_.shard().Initialize(InitializeAll(view_), {timers_.Now()},
                                [](const absl::StatusOr<InitializeReply>& reply) {
                                  ASSERT_EQ(reply.status(), absl::OkStatus());
                                });
    Pass();
    process_.shard().Push(PushAll(view_, 1), {timers_.Now()},
                          [](const absl::StatusOr<PushReply>& reply) {
                            ASSERT_EQ(reply.status(), absl::OkStatus());
                          });
    Complete(1);
  }
};

TEST_F(ShardDiskTest, WithoutASignalItLoadsAllAndIsReady) {
  MakeWeights();
  Join();
  TellView(view_);
  Pass();
  EXPECT_EQ(files().reads(), kTensors);
  EXPECT_EQ(coordinator().ready.size(), 1u);
}

TEST_F(ShardDiskTest, SigtermWhileItLoadsIsToldAtOnceAndTheEndIsNotWaitedFor) {
  MakeWeights();
  size_t told = 0;
  files().on_read = [&](int read) {
    if (read == 3) {
      process_.OnSignal(SIGTERM);
      told = place_.preempted.size();
    }
    // The job does not train yet, so that the coordinator ends it.
    if (read == 4) place_.listener.on_failed(Cause(/*preempted=*/true));
  };
  Join();
  TellView(view_);
  EXPECT_EQ(told, 1u) << "while the third tensor was read";
  EXPECT_THAT(place_.preempted, ElementsAre("preempted by SIGTERM, 25s"));
  EXPECT_EQ(files().reads(), 4) << "it has read on after the signal, and no further after the end";
  Pass();
  ASSERT_TRUE(end_.has_value());
  EXPECT_EQ(end_->code, kPreempted);
  EXPECT_EQ(end_->last_line, "what failed first");
  EXPECT_EQ(place_.leaves, 1);
}

TEST_F(ShardDiskTest, TheJobsFailureEndsTheLoadingOfACheckpoint) {
  MakeWeights();
  files().on_read = [&](int read) {
    if (read == 1) place_.listener.on_failed(Cause(/*preempted=*/false));
  };
  Join();
  TellView(view_);
  EXPECT_EQ(files().reads(), 1);
  Pass();
  ASSERT_TRUE(end_.has_value());
  EXPECT_EQ(end_->code, kFailed);
  EXPECT_EQ(end_->last_line, "what failed first");
}

TEST_F(ShardDiskTest, SoDoesCtrlC) {
  MakeWeights();
  files().on_read = [&](int read) {
    if (read == 3) process_.OnSignal(SIGINT);
  };
  Join();
  TellView(view_);
  EXPECT_EQ(files().reads(), 3);
  Pass();
  ASSERT_TRUE(place_.failed.has_value());
  EXPECT_EQ(place_.failed->reason(), "preempted by SIGINT");
  ASSERT_TRUE(end_.has_value());
  EXPECT_EQ(end_->code, kPreempted);
}

TEST_F(ShardDiskTest, AndAViewThatStartsFromElsewhereWhichItFollowsThen) {
  MakeWeights();
  ClusterView next = view_;
  next.set_job_epoch(view_.job_epoch() + 1);
  next.set_view_epoch(view_.view_epoch() + 1);
  next.clear_start_from();
  files().on_read = [&](int read) {
    if (read != 3) return;
    WatchReply state;
    state.set_phase(PREPARING);
    *state.mutable_view() = next;
    place_.listener.on_state(std::make_shared<const WatchReply>(state));
  };
  Join();
  TellView(view_);
  EXPECT_EQ(files().reads(), 3);
  Pass();
  EXPECT_FALSE(end_.has_value());
  process_.shard().Initialize(InitializeAll(next), {timers_.Now()},
                              [](const absl::StatusOr<InitializeReply>& reply) {
                                ASSERT_EQ(reply.status(), absl::OkStatus());
                              });
  Pass();
  ASSERT_EQ(coordinator().ready.size(), 1u);
  EXPECT_EQ(coordinator().ready.front().header().job_epoch(), next.job_epoch());
}

TEST_F(ShardDiskTest, TheJobsFailureEndsTheWritingOfACheckpointAndNothingIsSaidOfIt) {
  files().on_append = [&](int append) {
    if (append == 3) place_.listener.on_failed(Cause(/*preempted=*/true));
  };
  TrainAStep();
  Tell(OrderOf(view_, kFolder));
  Pass();
  EXPECT_EQ(files().appends(), 3);
  EXPECT_TRUE(coordinator().files.empty());
  ASSERT_TRUE(end_.has_value());
  EXPECT_EQ(end_->code, kPreempted);
}

TEST_F(ShardDiskTest, ACheckpointThatIsGivenUpIsWrittenNoFurtherAndTheNextOneIs) {
  const std::string next = "run/step-00000001-again";
  ASSERT_EQ(files().CreateDirectories(next), absl::OkStatus());
  files().on_append = [&](int append) {
    if (append != 3) return;
    WatchReply off;
    off.set_phase(TRAINING);
    place_.listener.on_state(std::make_shared<const WatchReply>(off));
    EXPECT_FALSE(process_.HandleMail().has_value());
  };
  TrainAStep();
  Tell(OrderOf(view_, kFolder));
  EXPECT_EQ(files().appends(), 3);
  EXPECT_TRUE(coordinator().files.empty());
  Tell(OrderOf(view_, next));
  EXPECT_EQ(files().appends(), 3 + kTensors);
  ASSERT_EQ(coordinator().files.size(), 1u);
  EXPECT_EQ(coordinator().files.front().error(), "");
}

// With the machine's threads.
class ShardOnASlowDiskTest : public ::testing::Test {
 protected:
  ShardOnASlowDiskTest() {
    EXPECT_EQ(files_.CreateDirectories(kFolder), absl::OkStatus());
    ShardProcess::Surroundings around;
    around.job = SummingJob();
    around.job.set_preemption_grace("25s");
    around.job.set_liveness("10s");
    around.job.set_stall_timeout("60s");
    around.log = &log_;
    around.metrics = &metrics_;
    around.connector = &peers_;
    around.files = &files_;
    around.leave = [this](const ShardProcess::End& end) {
      left_with_.push_back(end);
      disk_comes_back_.Notify();
    };
    process_ = std::make_unique<ShardProcess>(std::move(around));
  }
  ~ShardOnASlowDiskTest() override { process_->Stop(); }

  void Join() {
    const auto end = process_->Start([&](Membership::Listener listener) {
      place_.listener = std::move(listener);
      return absl::StatusOr<std::unique_ptr<Membership>>(
          std::make_unique<FakeMembership>(&place_, 0, peers_.coordinator));
    });
    ASSERT_FALSE(end.has_value());
  }
  void Tell(const WatchReply& state) {
    place_.listener.on_state(std::make_shared<const WatchReply>(state));
  }
  void TellView() {
    WatchReply state;
    state.set_phase(PREPARING);
    *state.mutable_view() = view_;
    Tell(state);
  }
  // Until the first tensor of a checkpoint is being written.
  void BeginToWrite() {
    files_.on_append = [this, then = files_.on_append](int append) {
      if (append == 1) writes_.Notify();
      then(append);
    };
    Join();
    TellView();
    ASSERT_FALSE(process_->HandleMail().has_value());
    const CallTime now{SteadyNow(), absl::InfiniteFuture()};
    process_->shard().Initialize(InitializeAll(view_), now,
                                 [](const absl::StatusOr<InitializeReply>&) {});
    process_->shard().Push(PushAll(view_, 1), now, [](const absl::StatusOr<PushReply>&) {});
    process_->shard().Complete(CompleteStep(view_, 1), now,
                               [](const absl::StatusOr<CompleteReply>&) {});
    Tell(OrderOf(view_, kFolder));
    while (!writes_.WaitForNotificationWithTimeout(absl::Milliseconds(1))) {
      ASSERT_FALSE(process_->HandleMail().has_value());
    }
  }

  ClusterView view_ = ViewOfAll();
  FakeConnector peers_;
  std::function<void()> on_log_ = [] {};  // set before anything is logged
  Log log_{LogFormat::kText, "shard", [this](const std::string&) { on_log_(); }};
  Metrics metrics_;
  EventfulFiles files_;
  Place place_;
  std::vector<ShardProcess::End> left_with_;
  absl::Notification writes_;
  absl::Notification disk_comes_back_;
  std::unique_ptr<ShardProcess> process_;
};

TEST_F(ShardOnASlowDiskTest, StopWaitsForOneTensorMore) {
  absl::Notification stops;
  files_.on_append = [&](int append) {
    if (append == 1) stops.WaitForNotification();
    absl::SleepFor(absl::Milliseconds(20));  // so that Stop is under way
  };
  BeginToWrite();
  std::thread stopping([&] { process_->Stop(); });
  absl::SleepFor(absl::Milliseconds(50));
  stops.Notify();
  stopping.join();
  EXPECT_LT(files_.appends(), kTensors);
  EXPECT_TRUE(left_with_.empty());
}

TEST_F(ShardOnASlowDiskTest, WhatHangsInAWriteIsLeftWithTheCauseOfTheEnd) {
  files_.on_append = [this](int append) {
    if (append == 1) disk_comes_back_.WaitForNotification();
  };
  BeginToWrite();
  place_.listener.on_failed(Cause(/*preempted=*/true));
  const auto end = process_->HandleMail();
  ASSERT_TRUE(end.has_value());
  process_->Stop();
  ASSERT_EQ(left_with_.size(), 1u);
  EXPECT_EQ(left_with_[0].code, kPreempted);
  EXPECT_EQ(left_with_[0].last_line, "what failed first");
}

TEST_F(ShardOnASlowDiskTest, WhatHangsInAReadIsLeftToo) {
  StartFromWeights(files_, view_);
  absl::Notification reads;
  files_.on_read = [&](int) {
    if (!reads.HasBeenNotified()) reads.Notify();
    disk_comes_back_.WaitForNotification();
  };
  Join();
  TellView();
  std::thread main_thread([&] { (void)process_->HandleMail(); });
  reads.WaitForNotification();
  place_.listener.on_failed(Cause(/*preempted=*/false));
  main_thread.join();
  ASSERT_EQ(left_with_.size(), 1u);
  EXPECT_EQ(left_with_[0].code, kFailed);
  EXPECT_EQ(left_with_[0].last_line, "what failed first");
}

TEST_F(ShardOnASlowDiskTest, ALogThatHangsAtASignalKeepsNobodyFromTheEnd) {
  Join();
  absl::Notification logs;
  on_log_ = [&] {
    logs.Notify();
    disk_comes_back_.WaitForNotification();
  };
  std::thread signals([&] { process_->OnSignal(SIGTERM); });
  logs.WaitForNotification();
  EXPECT_THAT(place_.preempted, ElementsAre("preempted by SIGTERM, 25s"));
  place_.listener.on_failed(Cause(/*preempted=*/true));
  absl::Notification ended;
  std::thread main_thread([&] {
    EXPECT_TRUE(process_->HandleMail().has_value());
    ended.Notify();
  });
  EXPECT_TRUE(ended.WaitForNotificationWithTimeout(absl::Seconds(10)));
  disk_comes_back_.Notify();
  for (std::thread* thread : {&signals, &main_thread}) thread->join();
}

}  // namespace
}  // namespace parley::testing
