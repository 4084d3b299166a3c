#include "worker/fit.h"

#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/data/in_memory_source.h"

namespace parley {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Gives `classes` numbers for samples of two, or, with `pixels`, for each of three pixels.
class SmallNetwork final : public Network {
 public:
  explicit SmallNetwork(int64_t classes, bool pixels = false)
      : pixels_(pixels), weight_(at::ones({classes, 2})) {}
  at::Tensor Forward(const at::Tensor& x) override {
    ++forwards;
    evaluated_in_training = evaluated_in_training || training;
    const at::Tensor outputs = at::linear(x, weight_);
    return pixels_ ? outputs.unsqueeze(2).expand({-1, -1, 3}) : outputs;
  }
  void SetTraining(bool on) override { training = on; }
  std::vector<NamedTensor> Tensors() const override { return {{"weight", weight_}}; }

  bool training = true;
  bool evaluated_in_training = false;
  int forwards = 0;

 private:
  const bool pixels_;
  const at::Tensor weight_;
};

template <class T>
std::vector<std::byte> Bytes(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Samples of `width` numbers, with these y.
template <class T>
std::shared_ptr<const DataSource> Samples(DataType dtype, std::vector<int64_t> shape,
                                          const std::vector<T>& y, int64_t width = 2) {
  int64_t each = 1;
  for (const int64_t size : shape) each *= size;
  const uint64_t samples = y.size() / static_cast<uint64_t>(each);
  return std::make_shared<RowSource>(
      samples, SampleLayout{F32, {width}}, SampleLayout{dtype, std::move(shape)},
      Bytes(std::vector<float>(samples * static_cast<uint64_t>(width), 1.F)), Bytes(y));
}
std::shared_ptr<const DataSource> Classes(const std::vector<int64_t>& y, int64_t width = 2) {
  return Samples(I64, {}, y, width);
}

JobConfig JobWith(Loss loss) {
  JobConfig job;
  job.set_loss(loss);
  return job;
}

// What CheckFit says against it; "" where it has nothing to say.
std::string Complaint(Network& network, const Datasets& data, Loss loss = CROSS_ENTROPY) {
  const absl::Status status = CheckFit(JobWith(loss), network, data);
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(FitTest, WhatFitsPassesAndTheNetworkIsLeftInTraining) {
  SmallNetwork network(3);
  EXPECT_EQ(Complaint(network, {Classes({0, 1, 2}), Classes({2, 0})}), "");
  EXPECT_TRUE(network.training);
  EXPECT_FALSE(network.evaluated_in_training) << "batch statistics must not move";
  EXPECT_EQ(network.forwards, 2) << "one sample of each set";
}

TEST(FitTest, SetsWithoutSamplesAreNotLookedAt) {
  SmallNetwork network(3);
  EXPECT_EQ(Complaint(network, {Classes({0}), nullptr}), "");
  EXPECT_EQ(Complaint(network, {Classes({0}), Classes({})}), "");
  EXPECT_EQ(network.forwards, 2);
}

TEST(FitTest, SamplesThatTheNetworkDoesNotTakeAreRefusedWithTheSetsName) {
  SmallNetwork network(3);
  EXPECT_THAT(Complaint(network, {Classes({0}, 5), nullptr}),
              HasSubstr("the model and the training data"));
  EXPECT_THAT(Complaint(network, {Classes({0}), Classes({0}, 5)}),
              HasSubstr("the model and the test data"));
  EXPECT_TRUE(network.training) << "after a refusal too";
}

TEST(FitTest, AClassNumberThatTheNetworkDoesNotHaveIsRefusedWithItsSample) {
  SmallNetwork network(3);
  EXPECT_EQ(Complaint(network, {Classes({0, 2, 3, 9}), nullptr}),
            "sample 2 of the training data has class 3, but the model has 3 classes, 0 to 2");
  EXPECT_EQ(Complaint(network, {Classes({0}), Classes({2, -1})}),
            "sample 1 of the test data has class -1, but the model has 3 classes, 0 to 2");
}

TEST(FitTest, TheLastSampleOfALargeSetIsLookedAtToo) {
  SmallNetwork network(3);
  for (const size_t samples : {1000, 1001, 2500}) {
    std::vector<int64_t> y(samples, 1);
    EXPECT_EQ(Complaint(network, {Classes(y), nullptr}), "");
    y.back() = 3;
    EXPECT_THAT(Complaint(network, {Classes(y), nullptr}),
                HasSubstr("sample " + std::to_string(samples - 1) + " of the training data"));
  }
}

TEST(FitTest, SamplesThatTheLossLeavesOutMayHaveTheirOwnNumber) {
  SmallNetwork network(3);
  EXPECT_EQ(Complaint(network, {Classes({0, -100, 2}), nullptr}), "");
  EXPECT_THAT(Complaint(network, {Classes({0, -99, 2}), nullptr}), HasSubstr("class -99"));
}

TEST(FitTest, ClassNumbersMayBeOfAnyIntegerType) {
  SmallNetwork network(3);
  EXPECT_EQ(Complaint(network, {Samples<uint8_t>(U8, {}, {0, 2}), nullptr}), "");
  EXPECT_THAT(Complaint(network, {Samples<uint8_t>(U8, {}, {0, 200}), nullptr}),
              AllOf(HasSubstr("sample 1 "), HasSubstr("class 200")));
}

TEST(FitTest, WithAClassForEachPixelTheSampleIsNamedAndNotThePixel) {
  SmallNetwork network(3, /*pixels=*/true);
  EXPECT_EQ(Complaint(network, {Samples<int64_t>(I64, {3}, {0, 1, 2, 2, 1, 0}), nullptr}), "");
  EXPECT_THAT(Complaint(network, {Samples<int64_t>(I64, {3}, {0, 1, 2, 2, 7, 0}), nullptr}),
              AllOf(HasSubstr("sample 1 "), HasSubstr("class 7")));
}

TEST(FitTest, OneClassForASampleDoesNotFitANetworkWithOneForEachPixel) {
  SmallNetwork network(3, /*pixels=*/true);
  EXPECT_THAT(Complaint(network, {Classes({0}), nullptr}),
              HasSubstr("the model and the training data"));
}

TEST(FitTest, ForMeanSquaredErrorTheOutputsMustHaveTheShapeOfY) {
  SmallNetwork network(3);
  EXPECT_EQ(Complaint(network, {Samples<float>(F32, {3}, {9, 9, 9}), nullptr}, MEAN_SQUARED_ERROR),
            "");
  EXPECT_THAT(Complaint(network, {Samples<float>(F32, {2}, {9, 9}), nullptr}, MEAN_SQUARED_ERROR),
              AllOf(HasSubstr("the model and the training data"), HasSubstr("[1, 3]"),
                    HasSubstr("[1, 2]")));
}

TEST(FitTest, WholeNumbersAreNoClassesForMeanSquaredError) {
  SmallNetwork network(3);
  EXPECT_EQ(
      Complaint(network, {Samples<int64_t>(I64, {3}, {70, 80, 90}), nullptr}, MEAN_SQUARED_ERROR),
      "");
}

TEST(FitTest, ClassProbabilitiesMustBeAsManyAsTheClasses) {
  SmallNetwork network(3);
  EXPECT_EQ(Complaint(network, {Samples<float>(F32, {3}, {0.5, 0.5, 0}), nullptr}), "");
  EXPECT_THAT(Complaint(network, {Samples<float>(F32, {4}, {0.5, 0.5, 0, 0}), nullptr}),
              HasSubstr("the model and the training data"));
}

// Cannot be read from its second half on.
class DamagedSource final : public DataSource {
 public:
  explicit DamagedSource(std::shared_ptr<const DataSource> whole) : whole_(std::move(whole)) {}
  uint64_t size() const override { return whole_->size(); }
  const SampleLayout& x() const override { return whole_->x(); }
  const SampleLayout& y() const override { return whole_->y(); }
  absl::Status FillX(const Draw& draw, absl::Span<std::byte> x) const override {
    return whole_->FillX(draw, x);
  }
  absl::Status FillY(const Draw& draw, absl::Span<std::byte> y) const override {
    for (const uint64_t sample : draw.samples) {
      if (sample >= size() / 2) return absl::DataLossError("train.bin ends in sample 1");
    }
    return whole_->FillY(draw, y);
  }

 private:
  const std::shared_ptr<const DataSource> whole_;
};

TEST(FitTest, WhatTheDataSaysOfItselfIsPassedOn) {
  SmallNetwork network(3);
  const Datasets data = {std::make_shared<DamagedSource>(Classes({0, 1})), nullptr};
  const absl::Status status = CheckFit(JobWith(CROSS_ENTROPY), network, data);
  EXPECT_EQ(status, absl::DataLossError("train.bin ends in sample 1"));
}

TEST(FitTest, ATextFitsTheTransformerThatPredictsItsTokens) {
  JobConfig job = JobWith(CROSS_ENTROPY);
  Transformer& transformer = *job.mutable_model()->mutable_transformer();
  transformer.set_width(8);
  transformer.set_heads(2);
  transformer.set_hidden(8);
  transformer.set_layers(1);
  const SampleLayout layout = {I64, {3}, 5};
  const auto text = [&](const std::vector<int64_t>& y) {
    return std::make_shared<RowSource>(2, layout, layout, Bytes<int64_t>({0, 1, 2, 2, 3, 4}),
                                       Bytes(y));
  };
  const auto network = MakeNetwork(job, layout);
  ASSERT_TRUE(network.ok()) << network.status();
  EXPECT_EQ(Complaint(**network, {text({1, 2, 2, 3, 4, 0}), nullptr}), "");
  EXPECT_EQ(Complaint(**network, {text({1, 2, 2, 3, 4, 5}), nullptr}),
            "sample 1 of the training data has class 5, but the model has 5 classes, 0 to 4");
}

class FitInPartsTest : public ::testing::Test {
 protected:
  // What is said against images of these classes; "" where there is nothing to say.
  std::string Complaint(const std::vector<int64_t>& train, const std::vector<int64_t>& test) const {
    const SampleLayout image = {F32, {1, 28, 28}};
    const auto plan = PlanLayers(job_, image);
    EXPECT_TRUE(plan.ok()) << plan.status();
    const auto images = [&](const std::vector<int64_t>& y) {
      return std::make_shared<RowSource>(y.size(), image, SampleLayout{I64, {}},
                                         Bytes(std::vector<float>(y.size() * 28 * 28, 1.F)),
                                         Bytes(y));
    };
    const absl::Status status = CheckFit(job_, *plan, {images(train), images(test)});
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  }

  JobConfig job_ = [] {
    JobConfig job = JobWith(CROSS_ENTROPY);
    job.mutable_model()->mutable_simple_cnn()->set_classes(4);
    return job;
  }();
};

TEST_F(FitInPartsTest, AClassNumberThatTheLastLayerDoesNotHaveIsRefusedWithItsSample) {
  EXPECT_EQ(Complaint({0, 3, -100}, {2}), "");
  EXPECT_EQ(Complaint({0, 3, 4}, {2}),
            "sample 2 of the training data has class 4, but the model has 4 classes, 0 to 3");
  EXPECT_EQ(Complaint({0}, {2, 77}),
            "sample 1 of the test data has class 77, but the model has 4 classes, 0 to 3");
}

TEST_F(FitInPartsTest, OutputsThatAreNotLikeTheTargetsAreRefused) {
  job_.set_loss(MEAN_SQUARED_ERROR);
  EXPECT_THAT(Complaint({0}, {0}), AllOf(HasSubstr("the model and the training data"),
                                         HasSubstr("mean squared error: the model gives [1, 4]")));
}

TEST_F(FitInPartsTest, SamplesOfAnotherShapeThanTheLayersTakeAreRefused) {
  const auto plan = PlanLayers(job_, {F32, {1, 28, 28}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const absl::Status status = CheckFit(job_, *plan, {Classes({0}), nullptr});
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("the model and the training data"));
}

TEST_F(FitInPartsTest, WhatALayerKeepsForALaterOneIsHandedOn) {
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "transformer { width: 8 heads: 2 hidden: 6 layers: 3 dropout: 0.3 skips: true }",
      job_.mutable_model()));
  const SampleLayout layout = {I64, {3}, 5};
  const auto plan = PlanLayers(job_, layout);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto text = [&](int64_t last) {
    return std::make_shared<RowSource>(1, layout, layout, Bytes<int64_t>({0, 1, 4}),
                                       Bytes<int64_t>({1, 4, last}));
  };
  EXPECT_EQ(CheckFit(job_, *plan, {text(2), nullptr}), absl::OkStatus());
  EXPECT_EQ(CheckFit(job_, *plan, {text(5), nullptr}).message(),
            "sample 0 of the training data has class 5, but the model has 5 classes, 0 to 4");
}

TEST(FitTest, WithoutALossInTheJobItIsCrossEntropy) {
  SmallNetwork network(3);
  EXPECT_THAT(Complaint(network, {Classes({3}), nullptr}, LOSS_UNSPECIFIED),
              HasSubstr("but the model has 3 classes"));
}

}  // namespace
}  // namespace parley
