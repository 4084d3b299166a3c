#include "common/checkpoint/names.h"

#include <gtest/gtest.h>

namespace parley {
namespace {

TEST(CheckpointNames, AreThoseOfTheDocs) {
  EXPECT_EQ(StepFolderName(123), "step-00000123");
  EXPECT_EQ(StepFolderName(1234567890123), "step-1234567890123");
  EXPECT_EQ(ShardFileName(0), "shard-0.safetensors");
  EXPECT_EQ(StateName("fc1.weight", "exp_avg"), "fc1.weight.exp_avg");
}

TEST(CheckpointNames, AWholeTensorKeepsItsShapeAndACutOneIsNamedByItsRange) {
  TensorSpec tensor;
  tensor.set_name("fc1.weight");
  tensor.set_dtype(F16);
  tensor.add_shape(10);
  tensor.add_shape(20);
  const TensorSpec whole = PieceOf(tensor, 0, 200);
  EXPECT_EQ(whole.name(), "fc1.weight");
  EXPECT_EQ(whole.shape_size(), 2);
  const TensorSpec cut = PieceOf(tensor, 50, 200);
  EXPECT_EQ(cut.name(), "fc1.weight@50:200");
  EXPECT_EQ(cut.dtype(), F16);
  ASSERT_EQ(cut.shape_size(), 1);
  EXPECT_EQ(cut.shape(0), 150);
}

TEST(CheckpointNames, ComeApartAgain) {
  const PieceName cut = ParsePieceName("fc1.weight.exp_avg@0:65536");
  EXPECT_EQ(cut.name, "fc1.weight.exp_avg");
  ASSERT_TRUE(cut.range.has_value());
  EXPECT_EQ(cut.range->begin, 0U);
  EXPECT_EQ(cut.range->end, 65536U);
  EXPECT_EQ(ParsePieceName("a@1:2@3:4").name, "a@1:2");
  for (const char* whole :
       {"fc1.weight", "", "a@", "a@:", "a@1", "a@1:", "a@:2", "a@-1:2", "a@1:+2", "a@ 1:2",
        "a@01:2", "a:1@2", "a@1:2:3", "a@1:2 ", "a@99999999999999999999:1"}) {
    EXPECT_EQ(ParsePieceName(whole).name, whole);
    EXPECT_FALSE(ParsePieceName(whole).range.has_value()) << whole;
  }
}

TEST(Names, StepOfFolderTakesItsOwnNamesAlone) {
  for (const uint64_t step : {0ull, 7ull, 99999999ull, 123456789012ull}) {
    EXPECT_EQ(StepOfFolder(StepFolderName(step)), step);
  }
  for (const char* name : {"", "step-", "step-7", "step-+0000007", "step-00000007x", "latest",
                           "step-99999999999999999999", "Step-00000007"}) {
    EXPECT_FALSE(StepOfFolder(name).has_value()) << name;
  }
}

}  // namespace
}  // namespace parley
