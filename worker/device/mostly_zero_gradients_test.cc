#include "worker/device/mostly_zero_gradients.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "common/nonzero_blocks.h"
#include "worker/device/fake_device.h"

namespace parley {
namespace {

constexpr size_t kBlocks = 40;
constexpr size_t kValues = kBlocks * kNonzeroBlock - 100;

class MostlyZeroGradientsTest : public ::testing::Test {
 protected:
  // As a whole, in pieces of so many values.
  void Look(size_t tensor, size_t piece = 1000) {
    const absl::Span<const std::byte> bytes(reinterpret_cast<const std::byte*>(values_.data()),
                                            values_.size() * sizeof(float));
    const size_t most = piece * sizeof(float);
    for (size_t begin = 0; begin < bytes.size(); begin += most) {
      EXPECT_TRUE(zeros_->blocks(tensor).empty() || begin > 0);
      zeros_->Look(tensor, begin, bytes.subspan(begin, most));
    }
  }
  void Fill(std::vector<size_t> blocks) {
    std::fill(values_.begin(), values_.end(), 0.0F);
    for (const size_t block : blocks) values_[block * kNonzeroBlock + 17] = 1;
  }
  // What the device does, and what is said of it then.
  std::string Copy(size_t tensor) {
    const absl::Span<uint8_t> blocks = zeros_->blocks(tensor);
    EXPECT_EQ(blocks.size(), kBlocks);
    EXPECT_TRUE(
        device_.CopyNonzero(StreamId::kToHost, host_.data(), values_.data(), kValues, blocks.data())
            .ok());
    auto event = *device_.MakeEvent();
    EXPECT_TRUE(device_.Record(*event, StreamId::kToHost).ok());
    EXPECT_TRUE(device_.Await(*event, absl::InfiniteFuture()).ok());
    std::string nonzero = zeros_->Take(tensor);
    EXPECT_EQ(host_, values_);
    return nonzero;
  }
  std::string Found() const {
    return FindNonzero({reinterpret_cast<const std::byte*>(values_.data()), 4 * kValues}, 4);
  }

  FakeDevice device_{{.for_tensors_of_the_cpu = true}};
  std::unique_ptr<MostlyZeroGradients> zeros_ =
      *MostlyZeroGradients::Make(device_, {kValues * sizeof(float), 0, kValues * sizeof(float)});
  std::vector<float> values_ = std::vector<float>(kValues, 0.0F);
  std::vector<float> host_ = std::vector<float>(kValues, 0.0F);
};

TEST_F(MostlyZeroGradientsTest, OfWhatIsMostlyZeroTheRestGoes) {
  for (const size_t piece : {1000, 1024, 5000, 1'000'000}) {
    SCOPED_TRACE(piece);
    zeros_ = *MostlyZeroGradients::Make(device_, {4 * kValues, 0, 4 * kValues});
    zeros_->BeginStep();
    Fill({3, 9, 39});
    host_ = values_;
    Look(0, piece);
    zeros_->BeginStep();
    EXPECT_TRUE(zeros_->blocks(1).empty());
    EXPECT_TRUE(zeros_->blocks(2).empty()) << "not looked at";
    Fill({3, 4});
    EXPECT_EQ(Copy(0), Found());
    zeros_->BeginStep();
    Fill({});
    EXPECT_EQ(Copy(0), Found());
  }
}

TEST_F(MostlyZeroGradientsTest, WhatIsFullGoesAsAWhole) {
  zeros_->BeginStep();
  Fill({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  Look(0);
  EXPECT_TRUE(zeros_->blocks(0).empty());
  zeros_->BeginStep();
  Fill({0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  host_ = values_;
  Look(0);
  EXPECT_FALSE(zeros_->blocks(0).empty());
  // It becomes fuller: as a whole again, when most of it goes.
  zeros_->BeginStep();
  std::vector<size_t> some(kBlocks / 2);
  std::iota(some.begin(), some.end(), size_t{5});
  Fill(some);
  EXPECT_EQ(Copy(0), Found());
  zeros_->BeginStep();
  some.push_back(39);
  Fill(some);
  EXPECT_EQ(Copy(0), Found());
  EXPECT_TRUE(zeros_->blocks(0).empty());
}

TEST_F(MostlyZeroGradientsTest, AllAreLookedAtNowAndThen) {
  for (int step = 0; step < 2; ++step) {
    zeros_->BeginStep();
    std::fill(values_.begin(), values_.end(), 2.0F);
    Look(0);
  }
  int looked = 0;
  for (int step = 2; step < 130; ++step) {
    zeros_->BeginStep();
    Fill({1});
    Look(2);
    if (zeros_->blocks(2).empty()) continue;
    ++looked;
    zeros_->Forget(2);
    zeros_->BeginStep();
    std::fill(values_.begin(), values_.end(), 2.0F);
    Look(2);
    zeros_->BeginStep();
    Look(2);
  }
  EXPECT_GE(looked, 1);
  EXPECT_LE(looked, 3);
}

TEST_F(MostlyZeroGradientsTest, WhatIsForgottenOrGivenUpGoesAsAWhole) {
  zeros_->BeginStep();
  Fill({1});
  Look(0);
  Look(2);
  zeros_->Forget(0);
  zeros_->GiveUp(2);
  EXPECT_TRUE(zeros_->blocks(0).empty());
  EXPECT_TRUE(zeros_->blocks(2).empty());
  zeros_->BeginStep();
  Look(0);
  Look(2);
  EXPECT_FALSE(zeros_->blocks(0).empty());
  EXPECT_TRUE(zeros_->blocks(2).empty()) << "never again";
}

}  // namespace
}  // namespace parley
