// What every Reducer does, with 2, 3 and 8 ranks. Their threads are their own; the suite calls all
// ranks from one.
#include "tests/contract/reducer_contract.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/clock/steady_now.h"
#include "common/tensor.h"

namespace parley {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);

TensorSpec Tensor(const std::string& name, int64_t elements, DataType dtype = F32,
                  bool buffer = false) {
  TensorSpec tensor;
  tensor.set_name(name);
  tensor.set_dtype(dtype);
  tensor.add_shape(elements);
  tensor.set_buffer(buffer);
  return tensor;
}

// `big` is cut into uneven ranges of all ranks, `small` and `double` are of one rank each, and the
// buffer is nobody's.
enum Tensors : size_t { kBig, kSmall, kBuffer, kDouble, kTensors };
constexpr size_t kBigElements = 50'000;

std::vector<TensorSpec> Model(bool float64) {
  return {Tensor("big", kBigElements), Tensor("small", 7), Tensor("count", 5, F32, true),
          Tensor("double", 1'003, float64 ? F64 : F32)};
}

std::vector<std::vector<Reducer::Range>> Ranges(uint32_t ranks,
                                                const std::vector<TensorSpec>& model) {
  std::vector<std::vector<Reducer::Range>> ranges(kTensors);
  size_t begin = 0;
  for (uint32_t i = 0; begin < kBigElements; ++i) {
    const size_t elements = std::min<size_t>(kBigElements - begin, 1 + 1'700 * (i % 5));
    ranges[kBig].push_back({begin * sizeof(float), elements * sizeof(float), i % ranks});
    begin += elements;
  }
  ranges[kSmall].push_back({0, 7 * sizeof(float), ranks - 1});
  ranges[kDouble].push_back({0, ByteCount(model[kDouble]), 0});
  return ranges;
}

// What a rank's reducer has said.
class Heard final : public Reducer::Listener {
 public:
  void OnReduced(size_t tensor, bool any) override {
    absl::MutexLock lock(&mu_);
    reduced_.emplace_back(tensor, any);
  }
  void OnAllReduced() override {
    absl::MutexLock lock(&mu_);
    ++all_;
  }
  void OnShared() override {
    absl::MutexLock lock(&mu_);
    ++shared_;
  }
  void OnBroken(const absl::Status& why) override {
    absl::MutexLock lock(&mu_);
    broken_ = why;
  }

  std::vector<std::pair<size_t, bool>> TakeReduced() {
    absl::MutexLock lock(&mu_);
    return std::exchange(reduced_, {});
  }
  int all() {
    absl::MutexLock lock(&mu_);
    return all_;
  }
  int shared() {
    absl::MutexLock lock(&mu_);
    return shared_;
  }
  absl::Status broken() {
    absl::MutexLock lock(&mu_);
    return broken_;
  }

 private:
  absl::Mutex mu_;
  std::vector<std::pair<size_t, bool>> reduced_ ABSL_GUARDED_BY(mu_);
  int all_ ABSL_GUARDED_BY(mu_) = 0;
  int shared_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status broken_ ABSL_GUARDED_BY(mu_);
};

bool Becomes(const std::function<bool()>& what, absl::Duration patience = kPatience) {
  const absl::Time end = SteadyNow() + patience;
  while (!what()) {
    if (SteadyNow() >= end) return false;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

class ReducerContract : public testing::TestWithParam<std::tuple<ReducerKind, uint32_t>> {
 protected:
  uint32_t size() const { return std::get<1>(GetParam()); }
  const ReducerKind& kind() const { return std::get<0>(GetParam()); }

  struct Rank {
    Member member;
    // Of this composition; before the reducer, which calls it.
    std::unique_ptr<Heard> heard = std::make_unique<Heard>();
    std::unique_ptr<ReducerRank> made;
    double weight = 1;
  };

  ReducerContract() {
    for (uint32_t rank = 0; rank < size(); ++rank) ranks_.push_back(Start(rank));
  }

  std::vector<Reducer::Range> RangesOf(size_t tensor) const {
    return Ranges(size(), model_)[tensor];
  }

  // A new process, as it were.
  std::unique_ptr<Rank> Start(uint32_t rank) {
    auto started = std::make_unique<Rank>();
    started->member.set_ordinal(rank);
    started->member.set_id(100 + next_);
    started->member.set_address(absl::StrCat("contract:", ::getpid(), ":", next_++));
    started->made = kind().make(started->member.address(), model_);
    return started;
  }

  Reducer& reducer(uint32_t rank) { return ranks_[rank]->made->reducer(); }

  absl::Status Form(uint32_t rank) {
    Reducer::Group group;
    group.job = "digits";
    group.job_epoch = 1;
    group.composition = composition_;
    group.rank = rank;
    for (const auto& each : ranks_) group.members.push_back(each->member);
    group.ranges = Ranges(size(), model_);
    for (uint32_t slice = 0; slice < 2 * size(); ++slice) group.values.push_back(ValuesOf(slice));
    // What the former composition has come to is none of the new one's. The reducer ends it first.
    const auto former = std::exchange(ranks_[rank]->heard, std::make_unique<Heard>());
    return reducer(rank).Form(std::move(group), ranks_[rank]->heard.get());
  }
  void FormAll() {
    for (uint32_t rank = 0; rank < size(); ++rank) {
      const absl::Status formed = Form(rank);
      ASSERT_TRUE(formed.ok()) << formed;
    }
  }

  // Two slices of each rank, of uneven sizes.
  std::pair<uint64_t, uint32_t> ValuesOf(uint32_t slice) const {
    return {1 + slice * 7'000 + (slice % 3) * 100'000, slice % size()};
  }
  Reducer::Values Values(uint32_t slice, uint64_t version) const {
    const auto [bytes, rank] = ValuesOf(slice);
    return {.slice = slice, .rank = rank, .version = version, .bytes = bytes};
  }
  std::string Contents(uint32_t slice, uint64_t version) const {
    std::string contents(ValuesOf(slice).first, '\0');
    for (size_t i = 0; i < contents.size(); ++i) {
      contents[i] = static_cast<char>(slice * 31 + version * 7 + i);
    }
    return contents;
  }
  static absl::Span<const std::byte> Bytes(const std::string& text) {
    return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
  }
  Reducer::Taken Take(uint32_t rank, uint32_t slice, uint64_t version, std::string& to) {
    to.assign(ValuesOf(slice).first, ' ');
    return reducer(rank).Take(Values(slice, version),
                              {reinterpret_cast<std::byte*>(to.data()), to.size()});
  }
  void ShareAll(uint32_t rank, uint64_t version) {
    for (const uint32_t slice : {rank, rank + size()}) {
      reducer(rank).Share(Values(slice, version), Bytes(Contents(slice, version)));
    }
  }

  // A gradient that is a function of all of these.
  static double Value(uint32_t rank, uint64_t round, size_t tensor, size_t element) {
    uint64_t mixed = ((rank * 1'000 + round) * 1'000 + tensor) * 1'000'003 + element + 1;
    for (int i = 0; i < 3; ++i) {
      mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    }
    return std::ldexp(static_cast<double>(mixed % 20'000) - 10'000,
                      static_cast<int>((mixed >> 40) % 20) - 20);
  }

  bool IsDouble(size_t tensor) const { return model_[tensor].dtype() == F64; }

  template <class T>
  void WriteAs(uint32_t rank, uint64_t round, size_t tensor) {
    const absl::Span<std::byte> to = ranks_[rank]->made->gradient(tensor);
    auto* const values = reinterpret_cast<T*>(to.data());
    for (size_t i = 0; i < to.size() / sizeof(T); ++i) {
      values[i] = static_cast<T>(Value(rank, round, tensor, i));
    }
  }
  void Write(uint32_t rank, uint64_t round, size_t tensor) {
    IsDouble(tensor) ? WriteAs<double>(rank, round, tensor) : WriteAs<float>(rank, round, tensor);
  }

  // Opens the step, and writes all gradients.
  void Open(uint32_t rank, uint64_t step, uint64_t round) {
    reducer(rank).Open(step, ranks_[rank]->weight);
    for (size_t tensor = 0; tensor < kTensors; ++tensor) Write(rank, round, tensor);
  }
  void OfferAll(uint32_t rank) {
    for (const size_t tensor : {kDouble, kSmall, kBig}) reducer(rank).Offer(tensor);
  }

  template <class T>
  void ExpectSumsAs(uint64_t round, size_t tensor, const std::vector<uint32_t>& having) {
    for (const Reducer::Range& range : RangesOf(tensor)) {
      const auto* const values = reinterpret_cast<const T*>(
          ranks_[range.rank]->made->gradient(tensor).data() + range.begin);
      for (size_t i = 0; i < range.bytes / sizeof(T); ++i) {
        float sum = -0.0f;
        for (const uint32_t rank : having) {
          T gradient = static_cast<T>(Value(rank, round, tensor, range.begin / sizeof(T) + i));
          gradient *= static_cast<T>(ranks_[rank]->weight);
          sum += static_cast<float>(gradient);
        }
        if (kind().ordered) {
          ASSERT_EQ(std::bit_cast<uint32_t>(static_cast<float>(values[i])),
                    std::bit_cast<uint32_t>(sum))
              << model_[tensor].name() << " from byte " << range.begin << ", element " << i;
        } else {
          ASSERT_NEAR(static_cast<float>(values[i]), sum, 1e-4 * (1 + std::abs(sum)));
        }
      }
    }
  }
  void ExpectSums(uint64_t round, size_t tensor, const std::vector<uint32_t>& having) {
    IsDouble(tensor) ? ExpectSumsAs<double>(round, tensor, having)
                     : ExpectSumsAs<float>(round, tensor, having);
  }
  std::vector<uint32_t> All() const {
    std::vector<uint32_t> all;
    for (uint32_t rank = 0; rank < size(); ++rank) all.push_back(rank);
    return all;
  }

  void ExpectDone() {
    for (uint32_t rank = 0; rank < size(); ++rank) {
      ASSERT_TRUE(Becomes([&] { return reducer(rank).done(); }))
          << "rank " << rank << ": " << reducer(rank).Missing();
      ASSERT_TRUE(ranks_[rank]->heard->broken().ok()) << ranks_[rank]->heard->broken();
    }
  }

  // A whole step, in which all is right.
  void DoStep(uint64_t step, uint64_t round) {
    for (uint32_t rank = 0; rank < size(); ++rank) Open(rank, step, round);
    for (uint32_t rank = 0; rank < size(); ++rank) {
      OfferAll(rank);
      reducer(rank).Close();
    }
    ExpectDone();
    for (const size_t tensor : {kBig, kSmall, kDouble}) ExpectSums(round, tensor, All());
  }

  const std::vector<TensorSpec> model_ = Model(kind().float64);
  uint64_t composition_ = 1;
  int next_ = 0;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

// Of those that reduce one tensor after the other, in the order in which they come.
class ReducerOfTensors : public ReducerContract {};

TEST_P(ReducerContract, TheSumsAreThoseOfAllRanksTimesTheirWeights) {
  for (uint32_t rank = 0; rank < size(); ++rank) ranks_[rank]->weight = rank % 3 == 1 ? 0.3 : 1;
  FormAll();
  DoStep(1, 1);
  for (uint32_t rank = 0; rank < size(); ++rank) {
    EXPECT_EQ(ranks_[rank]->heard->TakeReduced().size(), 3u) << "each tensor once";
    EXPECT_TRUE(Becomes([&] { return ranks_[rank]->heard->all() == 1; }));
    EXPECT_EQ(reducer(rank).Missing(), "");
  }
}

TEST_P(ReducerContract, OnlyWhatARankOwnsIsWritten) {
  FormAll();
  DoStep(1, 1);
  for (uint32_t rank = 0; rank < size(); ++rank) {
    for (const Reducer::Range& range : RangesOf(kBig)) {
      if (range.rank == rank) continue;
      const auto* const values =
          reinterpret_cast<const float*>(ranks_[rank]->made->gradient(kBig).data() + range.begin);
      for (size_t i = 0; i < range.bytes / sizeof(float); ++i) {
        ASSERT_EQ(values[i], static_cast<float>(Value(rank, 1, kBig, range.begin / 4 + i)));
      }
    }
  }
}

TEST_P(ReducerContract, StepsFollowEachOther) {
  FormAll();
  for (uint64_t step = 1; step <= 20; ++step) {
    DoStep(step, step);
    if (HasFatalFailure()) return;
  }
}

TEST_P(ReducerOfTensors, ATensorIsReducedAsSoonAsAllRanksHaveItsGradient) {
  FormAll();
  for (uint32_t rank = 0; rank < size(); ++rank) Open(rank, 1, 1);
  for (uint32_t rank = 0; rank < size(); ++rank) reducer(rank).Offer(kSmall);
  for (uint32_t rank = 0; rank < size(); ++rank) {
    std::vector<std::pair<size_t, bool>> reduced;
    ASSERT_TRUE(Becomes([&] {
      reduced = ranks_[rank]->heard->TakeReduced();
      return !reduced.empty();
    }));
    EXPECT_EQ(reduced, (std::vector<std::pair<size_t, bool>>{{kSmall, true}}));
    EXPECT_FALSE(reducer(rank).done());
  }
  ExpectSums(1, kSmall, All());
}

TEST_P(ReducerContract, ThreadsOfBackwardOfferInAnyOrder) {
  FormAll();
  for (uint32_t rank = 0; rank < size(); ++rank) Open(rank, 1, 1);
  for (uint32_t rank = 0; rank < size(); ++rank) {
    const std::vector<size_t> order = rank % 2 == 0 ? std::vector<size_t>{kBig, kSmall, kDouble}
                                                    : std::vector<size_t>{kDouble, kBig, kSmall};
    for (const size_t tensor : order) reducer(rank).Offer(tensor);
  }
  ExpectDone();
  for (const size_t tensor : {kBig, kSmall, kDouble}) ExpectSums(1, tensor, All());
}

TEST_P(ReducerContract, RanksWithoutAGradientAreLeftOut) {
  FormAll();
  for (uint32_t rank = 0; rank < size(); ++rank) Open(rank, 1, 1);
  // Of big only rank 1 has one, of small all but rank 0, of double nobody.
  std::vector<uint32_t> others;
  for (uint32_t rank = 0; rank < size(); ++rank) {
    if (rank == 1) reducer(rank).Offer(kBig);
    if (rank == 0) continue;
    reducer(rank).Offer(kSmall);
    others.push_back(rank);
  }
  for (uint32_t rank = 0; rank < size(); ++rank) reducer(rank).Close();
  ExpectDone();
  ExpectSums(1, kBig, {1});
  ExpectSums(1, kSmall, others);
  for (uint32_t rank = 0; rank < size(); ++rank) {
    for (const auto& [tensor, any] : ranks_[rank]->heard->TakeReduced()) {
      EXPECT_EQ(any, tensor != kDouble) << "tensor " << tensor;
    }
  }
}

TEST_P(ReducerOfTensors, WhoIsMissingIsNamed) {
  const uint32_t slow = size() - 1;
  for (uint32_t rank = 0; rank < slow; ++rank) ASSERT_TRUE(Form(rank).ok());
  const std::string who =
      absl::StrCat("rank ", slow, " (worker ", slow, " at ", ranks_[slow]->member.address());
  EXPECT_NE(reducer(0).Missing().find(who + ", pid 0) has not answered"), std::string::npos)
      << reducer(0).Missing();
  ASSERT_TRUE(Form(slow).ok());
  ASSERT_TRUE(Becomes([&] { return reducer(0).Missing().empty(); }));
  for (uint32_t rank = 0; rank < size(); ++rank) Open(rank, 7, 1);
  for (uint32_t rank = 0; rank < slow; ++rank) OfferAll(rank);
  reducer(slow).Offer(kSmall);
  const std::string missing = " has not given 2 of its gradients of step 7";
  EXPECT_TRUE(Becomes([&] {
    const std::string text = reducer(0).Missing();
    return text.find(who) == 0 && text.find(missing) != std::string::npos;
  })) << reducer(0).Missing();
  EXPECT_FALSE(reducer(0).done());
  OfferAll(slow);
  ExpectDone();
}

// How far a rank is when it is lost.
enum class Point { kBeforeForm, kFormed, kOpened, kHalf, kAll, kDone };

TEST_P(ReducerContract, ARankThatIsLostAtAnyPointLeavesNothingToTheNextComposition) {
  uint64_t step = 0;
  uint64_t round = 0;
  for (const Point point : {Point::kBeforeForm, Point::kFormed, Point::kOpened, Point::kHalf,
                            Point::kAll, Point::kDone}) {
    SCOPED_TRACE(static_cast<int>(point));
    const uint32_t lost = static_cast<uint32_t>(point) % size();
    ++composition_;
    ++step;
    ++round;
    for (uint32_t rank = 0; rank < size(); ++rank) {
      if (rank == lost && point == Point::kBeforeForm) continue;
      ASSERT_TRUE(Form(rank).ok());
      if (rank == lost && point == Point::kFormed) continue;
      Open(rank, step, round);
      if (rank == lost && point == Point::kOpened) continue;
      if (rank == lost && point == Point::kHalf) {
        reducer(rank).Offer(kDouble);
        continue;
      }
      OfferAll(rank);
    }
    if (point == Point::kDone) {
      ExpectDone();
    } else if (point < Point::kAll) {
      for (uint32_t rank = 0; rank < size(); ++rank) {
        EXPECT_TRUE(rank == lost || !reducer(rank).done());
      }
    }
    // Its successor is another process. The others hear of it at different times, and end without
    // waiting for anybody.
    ranks_[lost] = Start(lost);
    ++composition_;
    ++round;
    const absl::Time begun = SteadyNow();
    for (uint32_t rank = size(); rank-- > 0;) ASSERT_TRUE(Form(rank).ok());
    EXPECT_LT(SteadyNow() - begun, absl::Seconds(10));
    DoStep(step, round);
    if (HasFatalFailure()) return;
  }
}

TEST_P(ReducerContract, WhoIsStillOfTheFormerCompositionIsNotTaken) {
  FormAll();
  for (uint32_t rank = 0; rank < size(); ++rank) Open(rank, 1, 1);
  OfferAll(0);  // and stays behind
  ++composition_;
  for (uint32_t rank = 1; rank < size(); ++rank) {
    ASSERT_TRUE(Form(rank).ok());
    Open(rank, 1, 2);
    OfferAll(rank);
  }
  absl::SleepFor(absl::Milliseconds(100));
  for (uint32_t rank = 0; rank < size(); ++rank) EXPECT_FALSE(reducer(rank).done());
  ASSERT_TRUE(Form(0).ok());
  Open(0, 1, 2);
  OfferAll(0);
  ExpectDone();
  for (const size_t tensor : {kBig, kSmall, kDouble}) ExpectSums(2, tensor, All());
}

TEST_P(ReducerContract, WhatARankHadOfferedBeforeItAbortedIsNotTakenLater) {
  FormAll();
  const uint32_t slow = size() - 1;
  for (uint32_t rank = 0; rank < size(); ++rank) Open(rank, 1, 1);
  for (uint32_t rank = 0; rank < slow; ++rank) OfferAll(rank);
  reducer(0).Abort();
  for (const size_t tensor : {kBig, kSmall, kDouble}) Write(0, 2, tensor);
  OfferAll(slow);
  absl::SleepFor(absl::Milliseconds(100));
  for (uint32_t rank = 1; rank < size(); ++rank) {
    EXPECT_TRUE(ranks_[rank]->heard->TakeReduced().empty());
    EXPECT_FALSE(reducer(rank).done());
  }
}

TEST_P(ReducerContract, AMixtureOfTwoGradientsIsNeverTaken) {
  std::mt19937 random(5);
  int taken = 0;
  for (int round = 0; round < 60; ++round) {
    ++composition_;
    FormAll();
    for (uint32_t rank = 0; rank < size(); ++rank) Open(rank, 1, 1);
    for (uint32_t rank = 0; rank < size(); ++rank) reducer(rank).Offer(kBig);
    // The last rank gives the step up, and writes its gradient again, while the others read it.
    const absl::Time until = SteadyNow() + absl::Microseconds(random() % 300);
    while (SteadyNow() < until) {
    }
    reducer(size() - 1).Open(1, 1);
    const absl::Span<std::byte> memory = ranks_[size() - 1]->made->gradient(kBig);
    std::memset(memory.data(), 0x55, memory.size());
    absl::SleepFor(absl::Milliseconds(5));
    for (uint32_t rank = 0; rank + 1 < size(); ++rank) {
      reducer(rank).Abort();
      if (ranks_[rank]->heard->TakeReduced().empty()) continue;
      ++taken;
      for (const Reducer::Range& range : RangesOf(kBig)) {
        if (range.rank != rank) continue;
        const auto* const values =
            reinterpret_cast<const float*>(ranks_[rank]->made->gradient(kBig).data() + range.begin);
        for (size_t i = 0; i < range.bytes / sizeof(float); ++i) {
          float sum = -0.0f;
          for (uint32_t each = 0; each < size(); ++each) {
            sum += static_cast<float>(Value(each, 1, kBig, range.begin / sizeof(float) + i));
          }
          ASSERT_EQ(values[i], sum) << "round " << round << ", rank " << rank;
        }
      }
    }
    ranks_[size() - 1]->heard->TakeReduced();
  }
  std::printf("taken whole: %d\n", taken);
}

TEST_P(ReducerContract, WhatARankSharesAllOthersCanTake) {
  FormAll();
  for (uint64_t version = 0; version < 5; ++version) {
    for (uint32_t rank = 0; rank < size(); ++rank) ShareAll(rank, version);
    for (uint32_t rank = 0; rank < size(); ++rank) {
      for (uint32_t slice = 0; slice < 2 * size(); ++slice) {
        std::string got;
        if (slice % size() == rank) {
          EXPECT_EQ(Take(rank, slice, version, got), Reducer::Taken::kWithheld) << "its own";
          continue;
        }
        EXPECT_TRUE(
            Becomes([&] { return Take(rank, slice, version, got) == Reducer::Taken::kTaken; }));
        ASSERT_EQ(got, Contents(slice, version)) << "slice " << slice;
      }
    }
    DoStep(version + 1, version + 1);
    if (HasFatalFailure()) return;
  }
}

TEST_P(ReducerContract, WhoWatchesARankIsToldWhenItShares) {
  FormAll();
  std::string got;
  const uint32_t slow = size() - 1;
  ShareAll(0, 3);
  ASSERT_TRUE(Becomes([&] { return Take(slow, 0, 3, got) == Reducer::Taken::kTaken; }));
  EXPECT_EQ(Take(0, slow, 3, got), Reducer::Taken::kPending);
  reducer(0).Watch(slow);
  // Once to look, and then when there is something.
  ASSERT_TRUE(Becomes([&] { return ranks_[0]->heard->shared() > 0; }));
  const int before = ranks_[0]->heard->shared();
  EXPECT_EQ(Take(0, slow, 3, got), Reducer::Taken::kPending);
  ShareAll(slow, 3);
  EXPECT_TRUE(Becomes([&] { return ranks_[0]->heard->shared() > before; }));
  EXPECT_EQ(Take(0, slow, 3, got), Reducer::Taken::kTaken);
  EXPECT_EQ(got, Contents(slow, 3));
  reducer(0).Watch(std::nullopt);
}

TEST_P(ReducerContract, WhatDoesNotComeIsAskedOfTheShards) {
  FormAll();
  std::string got;
  reducer(0).Withhold(Values(0, 3));
  EXPECT_TRUE(Becomes([&] { return Take(1, 0, 3, got) == Reducer::Taken::kWithheld; }));
  EXPECT_EQ(Take(0, 1, 3, got), Reducer::Taken::kPending);
  reducer(0).Watch(1);
  EXPECT_TRUE(Becomes([&] { return Take(0, 1, 3, got) == Reducer::Taken::kWithheld; }))
      << "it takes too long";
  const int before = ranks_[0]->heard->shared();
  EXPECT_TRUE(Becomes([&] { return ranks_[0]->heard->shared() > before; }));
  reducer(0).Watch(std::nullopt);
  EXPECT_EQ(Take(0, 1, 3, got), Reducer::Taken::kPending) << "another pull";
  reducer(0).Abort();
  EXPECT_EQ(Take(0, 1, 3, got), Reducer::Taken::kWithheld);
}

TEST_P(ReducerContract, ValuesOfAFormerCompositionAreNotTaken) {
  FormAll();
  std::string got;
  ShareAll(0, 3);
  ASSERT_TRUE(Becomes([&] { return Take(1, 0, 3, got) == Reducer::Taken::kTaken; }));
  ++composition_;
  FormAll();
  absl::SleepFor(absl::Milliseconds(50));
  EXPECT_EQ(Take(1, 0, 3, got), Reducer::Taken::kPending);
  ShareAll(0, 3);
  EXPECT_TRUE(Becomes([&] { return Take(1, 0, 3, got) == Reducer::Taken::kTaken; }));
}

TEST_P(ReducerContract, AnAbortedOneIsQuietAndCanBeFormedAgain) {
  FormAll();
  for (uint32_t rank = 0; rank < size(); ++rank) reducer(rank).Abort();
  for (uint32_t rank = 0; rank < size(); ++rank) {
    reducer(rank).Abort();
    reducer(rank).Offer(kBig);
    reducer(rank).Close();
    EXPECT_TRUE(reducer(rank).done());
    EXPECT_EQ(reducer(rank).Missing(), "");
  }
  ++composition_;
  FormAll();
  DoStep(1, 3);
}

std::string NameOf(const testing::TestParamInfo<std::tuple<ReducerKind, uint32_t>>& info) {
  return absl::StrCat(std::get<0>(info.param).name, std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Over, ReducerContract,
                         testing::Combine(testing::Values(SharedMemoryKind(), DevicesKind()),
                                          testing::Values(2u, 3u, 8u)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Over, ReducerOfTensors,
                         testing::Combine(testing::Values(SharedMemoryKind()),
                                          testing::Values(2u, 3u, 8u)),
                         NameOf);

}  // namespace
}  // namespace parley
