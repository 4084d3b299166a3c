// Buffers, versions, accumulators and norms.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/tensor.h"
#include "server/parameter_shard/accumulator.h"
#include "server/parameter_shard/buffer.h"
#include "server/parameter_shard/gradient_norm.h"
#include "server/parameter_shard/versioned_values.h"

namespace parley {
namespace {

std::string Bytes(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

std::vector<float> Copy(absl::Span<const float> values) { return {values.begin(), values.end()}; }

// A slice as a push has it.
TensorSlice Given(DataType dtype, const TensorBytes& bytes) {
  return {0, dtype, bytes, nullptr, std::nullopt};
}

// Floats that their owner lends.
struct Lender {
  explicit Lender(std::vector<float> values) : values(std::move(values)) {}
  TensorSlice Lend() {
    const auto* const bytes = reinterpret_cast<const std::byte*>(values.data());
    return {0, F32, TensorBytes::Piece(bytes, values.size() * sizeof(float)),
            std::shared_ptr<const void>(&values, [](const void*) {}), Loan{&count, count}};
  }
  std::vector<float> values;
  std::atomic<uint64_t> count = 7;
};

TEST(BufferTest, BuffersAreAlignedAndComeBackToThePool) {
  BufferPool pool;
  std::shared_ptr<Buffer> buffer = pool.Take(100);
  const void* const memory = buffer->data();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u);
  buffer.reset();
  EXPECT_EQ(pool.free_buffers(), 1u);
  EXPECT_EQ(pool.Take(100)->data(), memory);
  EXPECT_NE(pool.Take(200)->data(), memory);
}

TEST(BufferTest, AReservationMakesWhatIsMissingEvenWhenThePoolHasGone) {
  std::function<void()> reservation;
  {
    BufferPool pool;
    reservation = pool.Reservation({{100, 3}, {200, 1}});
    const std::shared_ptr<Buffer> held = pool.Take(100);
    EXPECT_EQ(pool.free_buffers(), 0u);
    reservation();
    EXPECT_EQ(pool.free_buffers(), 4u);
    reservation();
    EXPECT_EQ(pool.free_buffers(), 4u);
    (void)pool.Take(200);
    EXPECT_EQ(pool.free_buffers(), 4u);
  }
  reservation();
}

TEST(BufferTest, APinOutlivesOwnerAndPool) {
  PinnedBuffer pin;
  {
    BufferPool pool;
    std::shared_ptr<Buffer> buffer = pool.Take(4);
    pin = Pin(buffer);
    EXPECT_TRUE(buffer->pinned());
    PinnedBuffer second = pin;
    second.reset();
    EXPECT_TRUE(buffer->pinned());
  }
  EXPECT_EQ(pin->size(), 4u);
}

TEST(VersionedValuesTest, UpdatesAreInPlaceWhereNobodyHoldsTheOldVersion) {
  BufferPool pool;
  VersionedValues values(&pool);
  values.Set(3, Bytes({1, 2}));
  const std::byte* const memory = values.PinVersion(3)->data();
  EXPECT_EQ(values.Update(4).data(), memory);
  EXPECT_EQ(values.PinVersion(3), nullptr);
  PinnedBuffer held = values.PinVersion(4);
  Buffer& next = values.Update(5);
  EXPECT_NE(next.data(), memory);
  next.as<float>()[0] = 7;
  EXPECT_EQ(held->as<float>()[0], 1);
  EXPECT_EQ(values.PinVersion(4)->data(), memory);
  EXPECT_EQ(values.held(), 2u);
  held.reset();
  values.Update(6);
  EXPECT_EQ(values.held(), 1u);
  EXPECT_EQ(pool.free_buffers(), 1u);
}

TEST(VersionedValuesTest, AVersionThatChangesNothingHasTheSameMemory) {
  BufferPool pool;
  VersionedValues values(&pool);
  values.Set(0, Bytes({1}));
  values.Raise(1);
  values.Raise(2);
  EXPECT_EQ(values.newest(), 2u);
  EXPECT_EQ(values.PinVersion(0)->data(), values.PinVersion(2)->data());
}

// For the race detector: readers hold versions on other threads while the owner goes on.
TEST(VersionedValuesTest, ReadersOnOtherThreadsSeeTheirVersionUnchanged) {
  BufferPool pool;
  VersionedValues values(&pool);
  values.Set(0, Bytes(std::vector<float>(1000, 0)));
  std::vector<std::thread> readers;
  for (uint64_t version = 0; version < 50; ++version) {
    readers.emplace_back([pin = values.PinVersion(version), version]() mutable {
      for (const float value : pin->as<float>()) ASSERT_EQ(value, static_cast<float>(version));
      pin.reset();
    });
    for (float& value : values.Update(version + 1).as<float>()) value += 1;
  }
  for (std::thread& reader : readers) reader.join();
}

TEST(GradientAccumulatorTest, AllFloatTypesAreAddedAsFloat32) {
  BufferPool pool;
  GradientAccumulator sum(2, /*apart=*/false, &pool);
  const std::vector<double> doubles = {0.5, -2};
  const std::vector<uint16_t> halves = {FloatToHalf(0.25f), FloatToHalf(8)};
  const std::vector<uint16_t> bfloats = {FloatToBFloat16(1), FloatToBFloat16(-1)};
  ASSERT_TRUE(sum.Add({0, 0, 0, 2}, Given(F32, std::string_view(Bytes({1, 1})))).ok());
  ASSERT_TRUE(
      sum.Add({1, 0, 0, 2},
              Given(F64, std::string_view(reinterpret_cast<const char*>(doubles.data()), 16)))
          .ok());
  ASSERT_TRUE(sum.Add({2, 0, 0, 2},
                      Given(F16, std::string_view(reinterpret_cast<const char*>(halves.data()), 4)))
                  .ok());
  ASSERT_TRUE(
      sum.Add({3, 0, 0, 2},
              Given(BF16, std::string_view(reinterpret_cast<const char*>(bfloats.data()), 4)))
          .ok());
  EXPECT_EQ(Copy(*sum.Sum({})), std::vector<float>({2.75f, 6}));
  EXPECT_TRUE(sum.Has(3, 0));
  EXPECT_FALSE(sum.Has(3, 1));
}

TEST(GradientAccumulatorTest, EachElementCountsTimesTheScaleInItsPrecision) {
  BufferPool pool;
  const double scale = 1.0 / 3;
  const auto factor = static_cast<float>(scale);
  const std::vector<float> floats = {0.1F, -7};
  const std::vector<double> doubles = {0.1, -7};
  const std::vector<uint16_t> halves = {FloatToHalf(0.1F), FloatToHalf(-7)};
  const std::vector<uint16_t> bfloats = {FloatToBFloat16(0.1F), FloatToBFloat16(-7)};
  const auto sum_of = [&](bool apart, DataType dtype, const auto& values, bool lent) {
    GradientAccumulator sum(2, apart, &pool);
    std::atomic<uint64_t> count = 1;
    const auto* const bytes = reinterpret_cast<const std::byte*>(values.data());
    TensorSlice slice = Given(dtype, TensorBytes::Piece(bytes, values.size() * sizeof(values[0])));
    if (lent) {
      slice.owner = std::shared_ptr<const void>(&values, [](const void*) {});
      slice.loan = Loan{&count, 1};
    }
    EXPECT_TRUE(sum.Add({0, 0, 0, 2}, slice, scale).ok());
    EXPECT_FALSE(sum.HasLent()) << "it is multiplied once";
    return Copy(*sum.Sum({0}));
  };
  for (const bool apart : {false, true}) {
    for (const bool lent : {false, true}) {
      EXPECT_EQ(sum_of(apart, F32, floats, lent),
                (std::vector<float>{floats[0] * factor, floats[1] * factor}));
      EXPECT_EQ(sum_of(apart, F64, doubles, lent),
                (std::vector<float>{static_cast<float>(doubles[0] * scale),
                                    static_cast<float>(doubles[1] * scale)}));
      EXPECT_EQ(sum_of(apart, F16, halves, lent),
                (std::vector<float>{HalfToFloat(halves[0]) * factor, -7 * factor}));
      EXPECT_EQ(sum_of(apart, BF16, bfloats, lent),
                (std::vector<float>{BFloat16ToFloat(bfloats[0]) * factor, -7 * factor}));
    }
  }
}

TEST(GradientAccumulatorTest, BytesNeedNoAlignment) {
  BufferPool pool;
  GradientAccumulator sum(2, /*apart=*/false, &pool);
  const std::string shifted = "x" + Bytes({1, 2});
  ASSERT_TRUE(sum.Add({0, 0, 0, 2}, Given(F32, std::string_view(shifted).substr(1))).ok());
  EXPECT_EQ(Copy(*sum.Sum({})), std::vector<float>({1, 2}));
}

// However a transport has cut them, within elements too.
TEST(GradientAccumulatorTest, BytesMayLieInPieces) {
  std::mt19937 random(1);
  BufferPool pool;
  for (const DataType dtype : {F32, F64, F16, BF16}) {
    for (int round = 0; round < 100; ++round) {
      const uint64_t elements = random() % 40;
      std::string bytes(elements * ElementBytes(dtype), '\0');
      // No NaN, which equals nothing.
      for (char& byte : bytes) byte = static_cast<char>(random() % 60);
      TensorBytes pieces;
      for (size_t at = 0; at < bytes.size();) {
        const size_t size = std::min<size_t>(bytes.size() - at, 1 + random() % 11);
        pieces.Append({reinterpret_cast<const std::byte*>(bytes.data()) + at, size});
        at += size;
      }
      for (const bool apart : {false, true}) {
        GradientAccumulator whole(elements, apart, &pool);
        GradientAccumulator cut(elements, apart, &pool);
        for (const uint32_t contributor : {0, 1}) {
          ASSERT_TRUE(
              whole.Add({contributor, 0, 0, elements}, Given(dtype, std::string_view(bytes))).ok());
          ASSERT_TRUE(cut.Add({contributor, 0, 0, elements}, Given(dtype, pieces)).ok());
        }
        EXPECT_EQ(Copy(*cut.Sum({0, 1})), Copy(*whole.Sum({0, 1})));
      }
    }
  }
}

TEST(GradientAccumulatorTest, KeptApartTheOrderIsByContributorThenPart) {
  BufferPool pool;
  // (big + small) - big loses the small one; (big - big) + small does not.
  const auto result = [&](std::vector<std::pair<uint32_t, float>> arrivals) {
    GradientAccumulator sum(1, /*apart=*/true, &pool);
    for (const auto& [contributor, value] : arrivals) {
      EXPECT_TRUE(
          sum.Add({contributor, 0, 0, 1}, Given(F32, std::string_view(Bytes({value})))).ok());
    }
    return (*sum.Sum({0, 1, 2}))[0];
  };
  const float reference = result({{0, 1e10f}, {1, -1e10f}, {2, 1}});
  EXPECT_EQ(reference, 1);
  EXPECT_EQ(result({{2, 1}, {0, 1e10f}, {1, -1e10f}}), reference);
}

TEST(GradientAccumulatorTest, KeptApartThoseThatDoNotCountAreLeftOut) {
  BufferPool pool;
  GradientAccumulator sum(3, /*apart=*/true, &pool);
  ASSERT_TRUE(sum.Add({0, 0, 0, 2}, Given(F32, std::string_view(Bytes({1, 1})))).ok());
  ASSERT_TRUE(sum.Add({1, 0, 1, 3}, Given(F32, std::string_view(Bytes({5, 5})))).ok());
  ASSERT_TRUE(sum.Add({2, 0, 1, 3}, Given(F32, std::string_view(Bytes({7, 7})))).ok());
  EXPECT_EQ(Copy(*sum.Sum({0, 2})), std::vector<float>({1, 8, 7}));
  EXPECT_EQ(Copy(*sum.Sum({0, 2})), std::vector<float>({1, 8, 7}));  // fixed
  sum.Drop();
  EXPECT_EQ(Copy(*sum.Sum({0, 2})), std::vector<float>({0, 0, 0}));
}

// Lent or copied, in one piece or by tiles: the same bits, whatever the order of arrival and the
// parts.
TEST(GradientAccumulatorTest, WhatIsLentAddsUpToTheSameBits) {
  std::mt19937 random(2);
  BufferPool pool;
  for (int round = 0; round < 200; ++round) {
    const bool apart = round % 2 == 0;
    const uint64_t elements = 1 + random() % 50;
    GradientAccumulator copied(elements, apart, &pool);
    GradientAccumulator lent(elements, apart, &pool);
    GradientAccumulator tiled(elements, apart, &pool);
    std::deque<Lender> lenders;
    std::vector<uint32_t> contributors;
    for (uint32_t contributor = 0; contributor < 4; ++contributor) {
      if (!apart || random() % 4 != 0) contributors.push_back(contributor);
      const uint64_t begin = random() % 2 == 0 ? 0 : random() % elements;
      const PartRange range = {contributor, 0, begin, elements};
      std::vector<float> values(elements - begin);
      for (float& value : values) value = std::ldexp(static_cast<float>(random() % 1000) - 500, 3);
      // So that another order would give other bits, unless sums are exact.
      if (apart) values[0] = std::ldexp(values[0], static_cast<int>(random() % 40));
      Lender& lender = lenders.emplace_back(std::move(values));
      ASSERT_TRUE(copied.Add(range, Given(F32, lender.Lend().bytes)).ok());
      // Some come by the network, also where others lend.
      const bool lends = random() % 3 != 0;
      ASSERT_TRUE(lent.Add(range, lends ? lender.Lend() : Given(F32, lender.Lend().bytes)).ok());
      ASSERT_TRUE(tiled.Add(range, lends ? lender.Lend() : Given(F32, lender.Lend().bytes)).ok());
    }
    const std::vector<float> expected = Copy(*copied.Sum(contributors));
    EXPECT_EQ(Copy(*lent.Sum(contributors)), expected);
    EXPECT_EQ(Copy(*lent.Sum(contributors)), expected);  // fixed
    std::vector<float> pieces(elements);
    const uint64_t tile = 1 + random() % 20;
    for (uint64_t begin = 0; begin < elements; begin += tile) {
      const uint64_t count = std::min(tile, elements - begin);
      const auto sum =
          tiled.SumOf(contributors, begin, absl::MakeSpan(pieces).subspan(begin, count));
      ASSERT_TRUE(sum.ok()) << sum.status();
      std::copy(sum->begin(), sum->end(), pieces.begin() + static_cast<ptrdiff_t>(begin));
    }
    EXPECT_TRUE(tiled.LentStands(contributors).ok());
    EXPECT_EQ(pieces, expected);
  }
}

TEST(GradientAccumulatorTest, WhatIsLentIsReadWhereItLies) {
  BufferPool pool;
  Lender lender({1, 2});
  GradientAccumulator sum(2, /*apart=*/false, &pool);
  ASSERT_TRUE(sum.Add({0, 0, 0, 2}, lender.Lend()).ok());
  EXPECT_TRUE(sum.HasLent());
  lender.values[0] = 5;  // by its rules it may not
  EXPECT_EQ(Copy(*sum.Sum({0})), std::vector<float>({5, 2}));
  EXPECT_FALSE(sum.HasLent());
}

// Of a type that has to be converted, or where no float can be read.
TEST(GradientAccumulatorTest, WhatIsLentAndCopiedIsLookedAtWhenItHasBeenCopied) {
  BufferPool pool;
  for (const bool apart : {false, true}) {
    GradientAccumulator sum(2, apart, &pool);
    ASSERT_TRUE(sum.Add({0, 0, 0, 2}, Given(F32, std::string_view(Bytes({1, 2})))).ok());
    Lender lender({4, 8});
    const auto* const bytes = reinterpret_cast<const std::byte*>(lender.values.data());
    TensorSlice halves = lender.Lend();
    halves.dtype = BF16;
    halves.bytes = TensorBytes::Piece(bytes + 4, 4);  // 0 and 8
    TensorSlice in_pieces = lender.Lend();
    in_pieces.bytes = TensorBytes::Piece(bytes, 3);
    in_pieces.bytes.Append({bytes + 3, 5});
    ++lender.count;
    for (const TensorSlice& slice : {halves, in_pieces}) {
      const absl::Status added = sum.Add({1, 0, 0, 2}, slice);
      EXPECT_TRUE(absl::IsAborted(added)) << added;
      EXPECT_THAT(std::string(added.message()), testing::HasSubstr("contributor 1"));
      EXPECT_FALSE(sum.Has(1, 0));
    }
    --lender.count;
    ASSERT_TRUE(sum.Add({1, 0, 0, 2}, halves).ok());
    ASSERT_TRUE(sum.Add({2, 0, 0, 2}, in_pieces).ok());
    ++lender.count;  // it is a copy now
    EXPECT_EQ(Copy(*sum.Sum({0, 1, 2})), std::vector<float>({5, 18}));
  }
}

TEST(GradientAccumulatorTest, WhatWasLentAndIsWrittenAgainIsFoundOut) {
  BufferPool pool;
  for (const bool apart : {false, true}) {
    Lender lender({1, 2});
    Lender other({1, 2});
    GradientAccumulator sum(2, apart, &pool);
    ASSERT_TRUE(sum.Add({0, 0, 0, 2}, lender.Lend()).ok());
    ASSERT_TRUE(sum.Add({1, 0, 0, 2}, other.Lend()).ok());
    ++lender.count;
    float tile[2];
    const absl::Status tiled = sum.SumOf({0, 1}, 0, tile).status();
    EXPECT_TRUE(absl::IsAborted(tiled)) << tiled;
    EXPECT_TRUE(absl::IsAborted(sum.LentStands({0, 1})));
    const absl::Status whole = sum.Sum({0, 1}).status();
    EXPECT_TRUE(absl::IsAborted(whole)) << whole;
    EXPECT_THAT(std::string(whole.message()), testing::HasSubstr("contributor 0"));
    // Of one that does not count nothing is read.
    if (apart) {
      EXPECT_TRUE(sum.SumOf({1}, 0, tile).ok());
      EXPECT_TRUE(sum.LentStands({1}).ok());
      EXPECT_TRUE(absl::IsAborted(sum.SumOf({0}, 0, tile).status()));
    }
    sum.Drop();
    EXPECT_TRUE(sum.Sum({0, 1}).ok());
  }
}

TEST(BufferTest, WhoIsShownASharedBufferFindsOutThatItIsWrittenAgain) {
  class Source final : public MemorySource {
   public:
    absl::StatusOr<MemoryBlock> Allocate(size_t bytes) override {
      const auto memory = std::make_shared<std::vector<std::byte>>(bytes + 64);
      const auto at = reinterpret_cast<uintptr_t>(memory->data()) % 64;
      return MemoryBlock{memory->data() + (64 - at), bytes, memory};
    }
    absl::Status Renew(const MemoryBlock&) override { return absl::UnimplementedError("not here"); }
  } source;
  BufferPool pool(&source);
  VersionedValues values(&pool);
  values.Set(0, "abcd");
  PinnedBuffer pin = values.PinVersion(0);
  const Loan loan = pin->Lend();
  values.Update(1);  // into other memory: it is pinned
  EXPECT_TRUE(loan.Stands());
  EXPECT_EQ(pool.TakeCopied(), 4u);
  pin.reset();
  values.Update(2);  // drops version 0, whose memory waits for a taker
  EXPECT_TRUE(loan.Stands());
  const Loan newest = values.PinVersion(2)->Lend();
  values.Update(3);  // in place
  EXPECT_FALSE(newest.Stands());
  const std::shared_ptr<Buffer> taken = pool.Take(4);
  EXPECT_FALSE(loan.Stands());
}

TEST(GradientNormTest, SumsOfSquaresAreThoseOfFloat64) {
  std::vector<float> values;
  double expected = 0;
  for (int i = 0; i < 1003; ++i) {
    values.push_back(static_cast<float>(i % 17) - 8);
    expected += static_cast<double>(values.back()) * values.back();
  }
  EXPECT_EQ(SumOfSquares(values), expected);  // integers: exact in any order
  EXPECT_EQ(SumOfSquares({}), 0);
}

TEST(GradientNormTest, InfinitiesAndNansAreFound) {
  std::vector<float> values(1000, 1);
  EXPECT_TRUE(AllFinite(values));
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    values[997] = bad;
    EXPECT_FALSE(AllFinite(values));
  }
  values[997] = std::numeric_limits<float>::max();
  EXPECT_TRUE(AllFinite(values));
}

TEST(GradientNormTest, TheScaleIsPyTorchs) {
  EXPECT_EQ(ClipScale(0.5, 1), 1);
  EXPECT_EQ(ClipScale(10, 1), 1 / (10 + 1e-6));
  EXPECT_EQ(ClipScale(std::numeric_limits<double>::infinity(), 1), 0);
  EXPECT_TRUE(std::isnan(ClipScale(std::numeric_limits<double>::quiet_NaN(), 1)));
}

}  // namespace
}  // namespace parley
