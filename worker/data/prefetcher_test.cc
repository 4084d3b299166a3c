#include "worker/data/prefetcher.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "absl/synchronization/notification.h"
#include "worker/data/in_memory_source.h"

namespace parley {
namespace {

// x and y of sample i are i; counts the calls; can be held up.
class CountingSource final : public DataSource {
 public:
  uint64_t size() const override { return 1000; }
  const SampleLayout& x() const override { return layout_; }
  const SampleLayout& y() const override { return layout_; }
  absl::Status FillX(const Draw& draw, absl::Span<std::byte> x) const override {
    {
      absl::MutexLock lock(&mu_);
      ++fills_;
      mu_.Await(absl::Condition(this, &CountingSource::IsOpen));
    }
    for (const uint64_t sample : draw.samples) {
      if (sample >= size()) return absl::OutOfRangeError("no such sample");
    }
    std::memcpy(x.data(), draw.samples.data(), x.size());
    return absl::OkStatus();
  }
  absl::Status FillY(const Draw& draw, absl::Span<std::byte> y) const override {
    std::memcpy(y.data(), draw.samples.data(), y.size());
    return absl::OkStatus();
  }
  void Open(bool open) {
    absl::MutexLock lock(&mu_);
    open_ = open;
  }
  // Waits until Fill was called `count` times.
  void AwaitFills(int count) const {
    absl::MutexLock lock(&mu_);
    const auto reached = [this, count]()
                             ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return fills_ >= count; };
    mu_.Await(absl::Condition(&reached));
  }
  int fills() const {
    absl::MutexLock lock(&mu_);
    return fills_;
  }

 private:
  bool IsOpen() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return open_; }
  const SampleLayout layout_{I64, {}};
  mutable absl::Mutex mu_;
  mutable int fills_ ABSL_GUARDED_BY(mu_) = 0;
  bool open_ ABSL_GUARDED_BY(mu_) = true;
};

void ExpectHolds(Batch& batch, const std::vector<uint64_t>& samples) {
  EXPECT_EQ(batch.draw.samples, samples);
  ASSERT_EQ(batch.x.span().size(), samples.size() * 8);
  EXPECT_EQ(std::memcmp(batch.x.span().data(), samples.data(), samples.size() * 8), 0);
  EXPECT_EQ(std::memcmp(batch.y.span().data(), samples.data(), samples.size() * 8), 0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(batch.x.span().data()) % 64, 0);
}

TEST(PrefetcherTest, PreparesAheadButNeverMoreThanItsBound) {
  const auto source = std::make_shared<CountingSource>();
  Prefetcher prefetcher(source, 2);
  prefetcher.Expect({{{1, 2}}, {{3}}, {{4, 5}}, {{6}}});
  source->AwaitFills(2);
  EXPECT_LE(prefetcher.prepared(), 2);
  ExpectHolds(**prefetcher.Take({{1, 2}}), {1, 2});
  source->AwaitFills(3);
  ExpectHolds(**prefetcher.Take({{3}}), {3});
  ExpectHolds(**prefetcher.Take({{4, 5}}), {4, 5});
  ExpectHolds(**prefetcher.Take({{6}}), {6});
  EXPECT_EQ(source->fills(), 4);  // nothing was read twice
}

TEST(PrefetcherTest, AWrongGuessChangesNothingButTime) {
  const auto source = std::make_shared<CountingSource>();
  Prefetcher prefetcher(source, 3);
  prefetcher.Expect({{{1}}, {{2}}, {{3}}});
  source->AwaitFills(1);
  ExpectHolds(**prefetcher.Take({{9}}), {9});
  prefetcher.Expect({{{10}}, {{11}}});
  ExpectHolds(**prefetcher.Take({{10}}), {10});
  ExpectHolds(**prefetcher.Take({{11}}), {11});
}

TEST(PrefetcherTest, WhatIsPreparedCanBeTakenBeforeItIsAskedFor) {
  const auto source = std::make_shared<CountingSource>();
  Prefetcher prefetcher(source, 2);
  EXPECT_EQ(prefetcher.TakePrepared(), nullptr);
  prefetcher.Expect({{{1}}, {{2}}, {{3}}});
  source->AwaitFills(2);  // the first one is prepared then
  const std::unique_ptr<Batch> first = prefetcher.TakePrepared();
  ASSERT_NE(first, nullptr);
  ExpectHolds(*first, {1});
  prefetcher.Expect({{{2}}, {{3}}});
  ExpectHolds(**prefetcher.Take({{2}}), {2});
  ExpectHolds(**prefetcher.Take({{3}}), {3});
  EXPECT_EQ(source->fills(), 3);
}

TEST(PrefetcherTest, RandomPlansAlwaysGiveTheSamplesAskedFor) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    Prefetcher prefetcher(std::make_shared<CountingSource>(), random() % 4);
    for (int step = 0; step < 200; ++step) {
      std::vector<Draw> plan(random() % 5);
      for (Draw& draw : plan) draw = {{random() % 8, random() % 8}, random() % 2};
      prefetcher.Expect(plan);
      for (Draw& draw : plan) {
        if (random() % 8 == 0) draw.samples = {random() % 8};
        auto batch = prefetcher.Take(draw);
        ASSERT_TRUE(batch.ok());
        ExpectHolds(**batch, draw.samples);
        if (random() % 2 == 0) prefetcher.Recycle(*std::move(batch));
        if (random() % 16 == 0) break;
      }
    }
  }
}

TEST(PrefetcherTest, AnErrorReachesTheOneWhoAsksForThatBatch) {
  for (const size_t ahead : {0, 2}) {
    const auto source = std::make_shared<CountingSource>();
    Prefetcher prefetcher(source, ahead);
    prefetcher.Expect({{{1}}, {{5000}}, {{2}}});
    EXPECT_TRUE(prefetcher.Take({{1}}).ok());
    if (ahead > 0) source->AwaitFills(3);  // the second one has ended
    EXPECT_EQ(prefetcher.TakePrepared(), nullptr);
    EXPECT_EQ(prefetcher.Take({{5000}}).status().code(), absl::StatusCode::kOutOfRange);
    EXPECT_TRUE(prefetcher.Take({{2}}).ok());
  }
}

TEST(PrefetcherTest, WhatIsUnderWayForAnOldPlanIsDropped) {
  const auto source = std::make_shared<CountingSource>();
  source->Open(false);
  Prefetcher prefetcher(source, 1);
  prefetcher.Expect({{{1}}});
  source->AwaitFills(1);  // under way
  prefetcher.Expect({{{2}}});
  source->Open(true);
  ExpectHolds(**prefetcher.Take({{2}}), {2});
  prefetcher.Expect({});
  EXPECT_EQ(prefetcher.prepared(), 0);
}

}  // namespace
}  // namespace parley
