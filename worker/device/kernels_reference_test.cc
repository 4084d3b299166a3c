#include "worker/device/kernels_reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace parley {
namespace {

using ::testing::ElementsAre;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <class T>
std::byte* Bytes(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

TEST(PackReference, PutsEachPieceAtItsPlaceTimesTheScale) {
  std::vector<float> a = {1, 2};
  std::vector<float> b = {3};
  std::vector<float> bucket(5, -1);
  PackReference({{a.data(), 3, 2}, {b.data(), 0, 1}}, 0.5f, BucketType::kFloat32, Bytes(bucket));
  EXPECT_THAT(bucket, ElementsAre(1.5f, -1, -1, 0.5f, 1));
}

TEST(PackReference, RoundsToTheNearestBFloat16AndTiesToEven) {
  // bfloat16 has 8 bits of precision: between 1 and 2 its steps are 1/128.
  std::vector<float> values = {1, 1 + 1.0f / 256, 1 + 3.0f / 256, 1 + 1.1f / 256, -kInfinity};
  std::vector<uint16_t> bucket(5);
  PackReference({{values.data(), 0, 5}}, 1, BucketType::kBFloat16, Bytes(bucket));
  EXPECT_THAT(bucket, ElementsAre(0x3f80, 0x3f80, 0x3f82, 0x3f81, 0xff80));
}

TEST(UnpackReference, IsTheOtherWay) {
  std::vector<uint16_t> bucket = {0x3f80, 0x3f81, 0xff80};
  std::vector<float> a(1);
  std::vector<float> b(2);
  UnpackReference({{a.data(), 2, 1}, {b.data(), 0, 2}}, BucketType::kBFloat16, Bytes(bucket));
  EXPECT_THAT(a, ElementsAre(-kInfinity));
  EXPECT_THAT(b, ElementsAre(1, 1 + 1.0f / 128));
}

TEST(UnscaleReference, MultipliesAndFindsWhatIsNotFinite) {
  std::vector<float> values = {2, -4};
  uint32_t bad = 0;
  UnscaleReference(values.data(), 2, 0.25f, &bad);
  EXPECT_THAT(values, ElementsAre(0.5f, -1));
  EXPECT_EQ(bad, 0);
  // It is the scaled gradient that must be finite: what overflows now was none of its.
  values = {std::numeric_limits<float>::max()};
  UnscaleReference(values.data(), 1, 2, &bad);
  EXPECT_EQ(bad, 0);
  for (const float wrong : {kInfinity, -kInfinity, std::nanf("")}) {
    values = {1, wrong};
    bad = 0;
    UnscaleReference(values.data(), 2, 1, &bad);
    EXPECT_EQ(bad, 1);
  }
}

TEST(CopyNonzeroReference, CopiesWhatIsNotZeroAndWhatMayNotBeOnTheHost) {
  const uint64_t count = 4 * kNonzeroBlock + 3;
  std::vector<float> device(count, 0.0f);
  device[0] = 1;
  device[3 * kNonzeroBlock - 1] = -0.0f;
  device[count - 1] = 2;
  std::vector<float> host(count, 7.0f);
  std::vector<uint8_t> nonzero = {0, 1, 0, 0, 1};
  CopyNonzeroReference(host.data(), device.data(), count, nonzero.data());
  EXPECT_THAT(nonzero, ElementsAre(1, 0, 1, 0, 1));
  EXPECT_EQ(host[1], 0);
  EXPECT_EQ(host[kNonzeroBlock], 0) << "was not on the host";
  EXPECT_TRUE(std::signbit(host[3 * kNonzeroBlock - 1]));
  EXPECT_EQ(host[3 * kNonzeroBlock], 7) << "is not looked at";
  EXPECT_EQ(host[count - 1], 2);
}

}  // namespace
}  // namespace parley
