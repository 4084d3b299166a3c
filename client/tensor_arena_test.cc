#include "client/tensor_arena.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace parley {
namespace {

TensorSpec Spec(DataType dtype, std::vector<int64_t> shape) {
  TensorSpec spec;
  spec.set_dtype(dtype);
  for (int64_t size : shape) spec.add_shape(size);
  return spec;
}

TEST(TensorArena, TensorsAreAlignedApartAndZero) {
  TensorArena arena({Spec(F32, {3}), Spec(I64, {}), Spec(F16, {5, 7}), Spec(U8, {129})});
  ASSERT_EQ(arena.size(), 4);
  const size_t bytes[] = {12, 8, 70, 129};
  const std::byte* end = nullptr;
  for (size_t i = 0; i < arena.size(); ++i) {
    const absl::Span<std::byte> tensor = arena.tensor(i);
    EXPECT_EQ(tensor.size(), bytes[i]);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data()) % 64, 0);
    if (end != nullptr) {
      EXPECT_GE(tensor.data(), end);
    }
    end = tensor.data() + tensor.size();
    for (std::byte value : tensor) EXPECT_EQ(value, std::byte{0});
  }
}

TEST(TensorArena, EachTensorIsRecalledByItselfOrAllAre) {
  TensorArena arena({Spec(F32, {3}), Spec(F32, {5})});
  const Loan first = arena.Lend(0);
  const Loan second = arena.Lend(1);
  arena.Recall(1);
  EXPECT_TRUE(first.Stands());
  EXPECT_FALSE(second.Stands());
  EXPECT_TRUE(arena.Lend(1).Stands());
  arena.Recall();
  EXPECT_FALSE(first.Stands());
}

TEST(TensorArena, AddressesStayWhenItMoves) {
  TensorArena arena({Spec(F32, {3})});
  const std::byte* before = arena.tensor(0).data();
  TensorArena moved = std::move(arena);
  EXPECT_EQ(moved.tensor(0).data(), before);
}

}  // namespace
}  // namespace parley
