#include "client/parameter_arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <new>

namespace parley {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kSlice = ParameterArena::kShown;

TensorSpec Spec(size_t bytes) {
  TensorSpec spec;
  spec.set_dtype(U8);
  spec.add_shape(static_cast<int64_t>(bytes));
  return spec;
}

// A shard's segment, as the shard writes it and as a worker sees it. Its first page has the count.
class Peer {
 public:
  explicit Peer(size_t bytes)
      : own_(*MemorySegment::Create(kPage + bytes)), seen_(*MemorySegment::OfPeer(own_->fd())) {
    count_ = new (own_->data()) std::atomic<uint64_t>(5);
    Write('a');
  }
  void Write(char value) {
    count_->fetch_add(1);
    std::memset(own_->data() + kPage, value, own_->bytes() - kPage);
  }
  // Bytes after the first page.
  TensorSlice Slice(size_t begin, size_t bytes) const {
    TensorSlice slice;
    slice.dtype = U8;
    slice.bytes = TensorBytes::Piece(seen_->data() + kPage + begin, bytes);
    slice.owner = slice.segment = seen_;
    slice.loan = Loan{reinterpret_cast<const std::atomic<uint64_t>*>(seen_->data()), *count_};
    return slice;
  }

 private:
  const std::shared_ptr<MemorySegment> own_;
  const std::shared_ptr<const MemorySegment> seen_;
  std::atomic<uint64_t>* count_;
};

bool AllAre(absl::Span<const std::byte> bytes, char value) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [&](std::byte byte) { return byte == static_cast<std::byte>(value); });
}

TEST(ParameterArena, WhatIsShownIsNotCopiedAndTellsWhenItWasWritten) {
  const auto arena = *ParameterArena::Make({Spec(100), Spec(2 * kSlice), Spec(100)});
  Peer peer(2 * kSlice);
  for (const size_t begin : {size_t{0}, kSlice}) {
    EXPECT_EQ(*arena->Show(1, begin, peer.Slice(begin, kSlice)), true);
  }
  EXPECT_TRUE(AllAre(arena->tensor(1), 'a'));
  EXPECT_TRUE(AllAre(arena->tensor(0), 0));
  EXPECT_TRUE(AllAre(arena->tensor(2), 0));
  EXPECT_TRUE(arena->Stands());
  peer.Write('b');
  EXPECT_TRUE(AllAre(arena->tensor(1), 'b'));
  EXPECT_FALSE(arena->Stands());
  for (const size_t begin : {size_t{0}, kSlice}) {
    EXPECT_EQ(*arena->Show(1, begin, peer.Slice(begin, kSlice)), true);
  }
  EXPECT_TRUE(arena->Stands());
}

TEST(ParameterArena, OneSliceThatWasWrittenIsEnough) {
  const auto arena = *ParameterArena::Make({Spec(2 * kSlice)});
  Peer one(kSlice);
  Peer other(kSlice);
  EXPECT_EQ(*arena->Show(0, 0, one.Slice(0, kSlice)), true);
  EXPECT_EQ(*arena->Show(0, kSlice, other.Slice(0, kSlice)), true);
  EXPECT_TRUE(arena->Stands());
  other.Write('b');
  EXPECT_FALSE(arena->Stands());
}

TEST(ParameterArena, OtherMemoryCanBeShownAtTheSamePlace) {
  const auto arena = *ParameterArena::Make({Spec(kSlice)});
  const Peer one(kSlice);
  Peer other(2 * kSlice);
  other.Write('c');
  EXPECT_EQ(*arena->Show(0, 0, one.Slice(0, kSlice)), true);
  EXPECT_EQ(*arena->Show(0, 0, other.Slice(kSlice, kSlice)), true);
  EXPECT_TRUE(AllAre(arena->tensor(0), 'c'));
}

TEST(ParameterArena, WhatIsCopiedGoesToOwnMemoryAndNothingElseChanges) {
  const auto arena = *ParameterArena::Make({Spec(2 * kSlice)});
  Peer peer(2 * kSlice);
  for (const size_t begin : {size_t{0}, kSlice}) {
    EXPECT_EQ(*arena->Show(0, begin, peer.Slice(begin, kSlice)), true);
  }
  std::byte* const own = *arena->Own(0, kSlice, kSlice);
  EXPECT_EQ(own, arena->tensor(0).data() + kSlice);
  std::memset(own, 'o', kSlice);
  peer.Write('b');
  EXPECT_TRUE(AllAre(arena->tensor(0).first(kSlice), 'b'));
  EXPECT_TRUE(AllAre(arena->tensor(0).subspan(kSlice), 'o'));
  std::memset(*arena->Own(0, 0, 2 * kSlice), 'p', 2 * kSlice);
  EXPECT_TRUE(arena->Stands());
}

TEST(ParameterArena, ALastPageIsShownWhereNothingElseIsOnIt) {
  const auto arena = *ParameterArena::Make({Spec(kSlice + 10), Spec(kSlice + 10)});
  const Peer peer(2 * kSlice);
  EXPECT_EQ(*arena->Show(0, 0, peer.Slice(0, kSlice + 10)), true);
  EXPECT_TRUE(AllAre(arena->tensor(0), 'a'));
  EXPECT_TRUE(AllAre(arena->tensor(1), 0));
}

TEST(ParameterArena, WhatIsSmallOrCutElsewhereOrNobodysSegmentIsNotShown) {
  const auto arena = *ParameterArena::Make({Spec(kSlice - 1), Spec(3 * kSlice)});
  const Peer peer(3 * kSlice);
  EXPECT_EQ(*arena->Show(0, 0, peer.Slice(0, kSlice - 1)), false);
  EXPECT_EQ(*arena->Show(1, 0, peer.Slice(10, kSlice)), false);
  EXPECT_EQ(*arena->Show(1, 10, peer.Slice(0, kSlice)), false);
  EXPECT_EQ(*arena->Show(1, 0, peer.Slice(0, kSlice + 10)), false);
  TensorSlice elsewhere = peer.Slice(0, kSlice);
  elsewhere.segment = nullptr;
  EXPECT_EQ(*arena->Show(1, 0, elsewhere), false);
  TensorSlice alone = peer.Slice(0, kSlice);
  alone.loan.reset();
  EXPECT_EQ(*arena->Show(1, 0, alone), false);
  EXPECT_TRUE(AllAre(arena->tensor(1), 0));
}

TEST(ParameterArena, DetachedValuesAreTheirReadersOwn) {
  auto arena = *ParameterArena::Make({Spec(2 * kSlice)});
  auto peer = std::make_unique<Peer>(2 * kSlice);
  for (const size_t begin : {size_t{0}, kSlice}) {
    EXPECT_EQ(*arena->Show(0, begin, peer->Slice(begin, kSlice)), true);
  }
  const absl::Span<const std::byte> values = arena->tensor(0);
  const std::shared_ptr<const void> memory = arena->owner();
  ASSERT_TRUE(arena->Detach().ok());
  peer->Write('b');
  peer.reset();
  arena.reset();
  EXPECT_TRUE(AllAre(values, 'a'));
  const_cast<std::byte&>(values[0]) = std::byte{'z'};  // as an optimizer of the user's own would
}

}  // namespace
}  // namespace parley
