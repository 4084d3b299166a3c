// A shard that carries out steps on a thread of its own while others call it. What it must not do
// at the same time, tsan sees.
#include "server/parameter_shard/locked_shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/clock/steady_now.h"
#include "common/loop_threads.h"
#include "common/worker_threads.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {
namespace {

constexpr uint64_t kPiece = 1 << 18;

template <class Reply>
absl::StatusOr<Reply> Wait(const std::function<void(Done<Reply>)>& call) {
  absl::Notification here;
  absl::StatusOr<Reply> result;
  call([&](absl::StatusOr<Reply> reply) {
    result = std::move(reply);
    here.Notify();
  });
  here.WaitForNotification();
  return result;
}

CallTime Now() { return {SteadyNow(), SteadyNow() + absl::Seconds(60)}; }

class LockedShardTest : public ::testing::Test {
 protected:
  LockedShardTest()
      : view_(MakeView({.tensors = {{"a", kPiece}, {"b", kPiece}, {"c", kPiece}},
                        .workers = 1,
                        .slice_elements = kPiece})) {}

  void Start(LockedShard& shard) {
    shard.Start(0);
    ASSERT_EQ(shard.SetView(view_, SteadyNow()), absl::OkStatus());
    const std::string zeros = BytesOf(Floats(kPiece));
    for (uint32_t slice = 0; slice < 3; ++slice) {
      ASSERT_EQ(shard.StartSlice(slice, {.values = zeros, .state = {}}, SteadyNow()),
                absl::OkStatus());
    }
  }

  // sparse: how many elements of the last slice have a gradient; 0: all.
  void Push(LockedShard& shard, uint64_t step, uint64_t sparse = 0) {
    PushRequest request;
    *request.mutable_header() = HeaderOf(view_, 1);
    request.set_step(step);
    for (uint32_t slice = 0; slice < 3; ++slice) {
      SliceData& data = *request.add_slices();
      data.set_slice(slice);
      data.set_dtype(F32);
      Floats gradient(kPiece, 1);
      if (slice == 2 && sparse > 0) std::fill(gradient.begin() + sparse, gradient.end(), 0.0F);
      data.set_data(BytesOf(gradient));
    }
    const auto pushed =
        Wait<PushReply>([&](auto done) { shard.Push(request, Now(), std::move(done)); });
    ASSERT_EQ(pushed.status(), absl::OkStatus());
    EXPECT_EQ(pushed->outcomes(0), ADDED);
  }

  absl::StatusOr<CompleteReply> Complete(LockedShard& shard, uint64_t step, bool at_once) {
    CompleteRequest request;
    *request.mutable_header() = HeaderOf(view_, 1);
    request.set_step(step);
    request.set_at_once(at_once);
    request.mutable_share()->set_weight(1);
    return Wait<CompleteReply>([&](auto done) { shard.Complete(request, Now(), std::move(done)); });
  }

  PullRequest MakePull(uint32_t slice, uint64_t version) const {
    PullRequest request;
    *request.mutable_header() = HeaderOf(view_, 1);
    request.set_version(version);
    request.add_slices(slice);
    return request;
  }

  const ClusterView view_;
};

// The coordinator, which waits for the shards to be ready, hears by it that they get on.
TEST_F(LockedShardTest, EachInitialValueIsNews) {
  std::vector<bool> news;
  LockedShard shard(SummingJob(), {[&](bool urgent) { news.push_back(urgent); }, nullptr});
  shard.Start(0);
  ASSERT_EQ(shard.SetView(view_, SteadyNow()), absl::OkStatus());
  news.clear();
  InitializeRequest request;
  *request.mutable_header() = HeaderOf(view_, 1);
  SliceData& data = *request.add_slices();
  data.set_dtype(F32);
  data.set_data(BytesOf(Floats(kPiece)));
  for (const uint32_t slice : {0, 0, 1, 2}) {
    data.set_slice(slice);
    const auto reply = Wait<InitializeReply>(
        [&](auto done) { shard.Initialize(request, Now(), std::move(done)); });
    ASSERT_EQ(reply.status(), absl::OkStatus());
  }
  EXPECT_EQ(news, (std::vector<bool>{false, false, true})) << "nothing of what is said again";
}

// Values of each step, while updates ahead of it are computed, begin, or come too late.
TEST_F(LockedShardTest, UpdatesAreComputedAheadOnOtherThreads) {
  LoopThreads threads(1);
  WorkerThreads later(1);
  WorkerThreads ahead(2);
  JobConfig job = SummingJob();
  job.mutable_consistency()->mutable_sync()->set_update_ahead(true);
  ShardResources resources;
  resources.parallel = [&](size_t count, const std::function<void(size_t)>& body) {
    threads.Run(count, body);
  };
  resources.later = [&](std::function<void()> task) { later.Run(std::move(task)); };
  resources.later_from = 1;
  absl::Mutex mu;
  int open = 0;
  resources.ahead = [&](std::function<void()> task) {
    {
      absl::MutexLock lock(&mu);
      ++open;
    }
    ahead.Run([&, task = std::move(task)] {
      task();
      absl::MutexLock lock(&mu);
      --open;
    });
  };
  constexpr uint64_t kSteps = 30;
  constexpr uint64_t kSparse = 5000;
  uint64_t ahead_taken = 0;
  {
    LockedShard shard(job, {}, resources);
    Start(shard);
    for (uint64_t step = 1; step <= kSteps; ++step) {
      Push(shard, step, kSparse);
      if (step % 2 == 0) {
        absl::MutexLock lock(&mu);
        mu.Await(absl::Condition(
            +[](int* count) { return *count == 0; }, &open));
      }
      ASSERT_TRUE(Complete(shard, step, /*at_once=*/true).ok());
      for (uint32_t slice = 0; slice < 3; ++slice) {
        const auto pulled = Wait<PulledVersion>(
            [&](auto done) { shard.Pull(MakePull(slice, step), Now(), std::move(done)); });
        ASSERT_EQ(pulled.status(), absl::OkStatus());
        const absl::Span<const float> values = pulled->slices[0].values->as<float>();
        ASSERT_EQ(std::count(values.begin(), values.end(), -static_cast<float>(step)),
                  static_cast<int64_t>(slice == 2 ? kSparse : kPiece));
      }
      // The step has been carried out.
      if (const auto reservation = shard.TakeNews().reservation) reservation();
    }
    const LockedShard::News news = shard.TakeNews();
    ahead_taken = news.counts.ahead_taken;
    EXPECT_GT(news.ahead_spent, absl::ZeroDuration());
  }
  EXPECT_GE(ahead_taken, kSteps / 2 * 3);
}

TEST_F(LockedShardTest, WhileAStepIsCarriedOutOnlyPullsGetIn) {
  std::function<void()> task;
  ShardResources resources;
  resources.later = [&](std::function<void()> given) { task = std::move(given); };
  resources.later_from = 1;
  std::atomic<int> applied = 0;
  LockedShard::Listener listener;
  listener.on_phase = [&](LockedShard::Phase phase, absl::Duration) {
    applied += phase == LockedShard::Phase::kApply ? 1 : 0;
  };
  LockedShard shard(SummingJob(), listener, resources);
  Start(shard);
  Push(shard, 1);
  ASSERT_TRUE(Complete(shard, 1, /*at_once=*/true).ok());
  ASSERT_TRUE(task);
  EXPECT_EQ(applied, 0);
  EXPECT_TRUE(shard.busy());
  // Other shards hear of the verdict meanwhile.
  EXPECT_EQ(shard.TakeNews().version, 1u);
  // Who asks what it waits for is told that.
  WaitsReply waits;
  absl::Notification told;
  std::thread asks([&] {
    shard.TellWaits(SteadyNow(), waits);
    told.Notify();
  });
  EXPECT_TRUE(told.WaitForNotificationWithTimeout(absl::Seconds(10)));
  absl::Notification pulled;
  shard.Pull(MakePull(2, 1), Now(), [&](const absl::StatusOr<PulledVersion>& values) {
    EXPECT_TRUE(values.ok()) << values.status();
    pulled.Notify();
  });
  EXPECT_FALSE(pulled.HasBeenNotified());
  std::atomic<bool> is_pushed = false;
  std::thread next([&] {
    Push(shard, 2);
    is_pushed = true;
  });
  absl::SleepFor(absl::Milliseconds(20));
  EXPECT_FALSE(is_pushed);
  task();
  asks.join();
  next.join();
  ASSERT_EQ(waits.waits_size(), 1);
  EXPECT_EQ(waits.waits(0).what(), "carrying out step 1");
  EXPECT_TRUE(pulled.HasBeenNotified());
  EXPECT_FALSE(shard.busy());
  EXPECT_EQ(applied, 1);
}

TEST_F(LockedShardTest, PullsPushesAndStepsOnManyThreads) {
  LoopThreads threads(2);
  WorkerThreads later(1);
  ShardResources resources;
  resources.parallel = [&](size_t count, const std::function<void(size_t)>& body) {
    threads.Run(count, body);
  };
  resources.later = [&](std::function<void()> task) { later.Run(std::move(task)); };
  resources.later_from = 1;
  std::atomic<int> news = 0;
  LockedShard::Listener listener;
  listener.on_news = [&](bool) { ++news; };
  constexpr uint64_t kSteps = 30;
  LockedShard shard(SummingJob(), listener, resources);
  Start(shard);
  std::vector<std::thread> readers;
  for (uint32_t slice = 0; slice < 3; ++slice) {
    readers.emplace_back([&, slice] {
      for (uint64_t version = 1; version <= kSteps; ++version) {
        const auto pulled = Wait<PulledVersion>(
            [&](auto done) { shard.Pull(MakePull(slice, version), Now(), std::move(done)); });
        if (absl::IsOutOfRange(pulled.status())) continue;  // the job was faster
        ASSERT_TRUE(pulled.ok()) << pulled.status();
        const auto values = pulled->slices[0].values->as<float>();
        EXPECT_EQ(values[0], -static_cast<float>(version));
        EXPECT_EQ(values.back(), -static_cast<float>(version));
      }
    });
  }
  std::atomic<bool> over = false;
  std::thread looks([&] {
    while (!over) {
      (void)shard.TakeNews();
      WaitsReply waits;
      shard.TellWaits(SteadyNow(), waits);
      shard.Tick(SteadyNow());
      (void)shard.Snapshot(1);
    }
  });
  for (uint64_t step = 1; step <= kSteps; ++step) {
    Push(shard, step);
    const auto verdict = Complete(shard, step, /*at_once=*/step % 3 != 0);
    ASSERT_TRUE(verdict.ok()) << verdict.status();
    EXPECT_EQ(verdict->verdict().outcome(), Verdict::APPLY);
  }
  for (std::thread& reader : readers) reader.join();
  over = true;
  looks.join();
  EXPECT_GE(news, static_cast<int>(kSteps));
}

TEST_F(LockedShardTest, ItsEndWaitsForTheStep) {
  for (int round = 0; round < 20; ++round) {
    WorkerThreads later(1);
    ShardResources resources;
    resources.later = [&](std::function<void()> task) { later.Run(std::move(task)); };
    resources.later_from = 1;
    LockedShard shard(SummingJob(), {}, resources);
    Start(shard);
    Push(shard, 1);
    ASSERT_TRUE(Complete(shard, 1, /*at_once=*/true).ok());
  }
}

}  // namespace
}  // namespace parley::testing
