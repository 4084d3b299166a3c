// Microbatches in parts against the whole batch in one network: equal but for the order of sums.

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <c10/core/DefaultDtype.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/pipeline_stage/stages_for_test.h"

namespace parley {
namespace {

constexpr int64_t kSamples[] = {4, 4, 4, 3};  // an uneven last microbatch

struct Case {
  std::string model;
  SampleLayout layout;
  std::vector<std::string> cuts;  // of four parts; the second one is that of two
};

// No dropout and no batch normalisation, which look at microbatches (docs/pipelines.md).
Case Transformer() {
  Case each;
  each.model = "transformer { width: 16 heads: 2 hidden: 24 layers: 3 dropout: 0 }";
  each.layout.dtype = I64;
  each.layout.shape = {6};
  each.layout.classes = 11;
  each.cuts = {"transformer_encoder.layers.0", "transformer_encoder.layers.1", "decoder"};
  return each;
}

// A skip connection over two parts of four, and one within the third.
Case TransformerWithSkips() {
  Case each = Transformer();
  each.model = "transformer { width: 16 heads: 2 hidden: 24 layers: 4 dropout: 0 skips: true }";
  each.cuts = {"transformer_encoder.layers.1", "transformer_encoder.layers.2",
               "transformer_encoder.layers.3"};
  return each;
}

Case Images() {
  Case each;
  each.model = "simple_cnn { classes: 4 }";
  each.layout.dtype = F32;
  each.layout.shape = {1, 28, 28};
  each.cuts = {"conv2", "fc1", "fc2"};
  return each;
}

JobConfig JobOf(const Case& each, uint32_t stages) {
  JobConfig job;
  job.set_seed(7);
  job.set_loss(CROSS_ENTROPY);
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(each.model, job.mutable_model()));
  job.mutable_cluster()->set_workers(1);
  job.mutable_cluster()->set_stages(stages);
  job.mutable_pipeline()->set_schedule(ONE_F_ONE_B);
  job.mutable_pipeline()->set_parts_per_stage(1);
  for (size_t i = 0; i < each.cuts.size(); ++i) {
    if (stages == 4 || i == 1) job.mutable_pipeline()->add_cut_before(each.cuts[i]);
  }
  return job;
}

MicrobatchesForTest DataOf(const Case& each) {
  MicrobatchesForTest data;
  for (const int64_t samples : kSamples) {
    std::vector<int64_t> shape = {samples};
    shape.insert(shape.end(), each.layout.shape.begin(), each.layout.shape.end());
    if (each.layout.dtype == I64) {
      data.x.push_back(at::randint(each.layout.classes, shape, at::kLong));
      data.y.push_back(at::randint(each.layout.classes, shape, at::kLong));
    } else {
      data.x.push_back(at::rand(shape));
      data.y.push_back(at::randint(4, {samples}, at::kLong));
    }
  }
  return data;
}

class FullBatchTest : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(GetParam()));
  }
  void TearDown() override { c10::set_default_dtype(c10::scalarTypeToTypeMeta(at::kFloat)); }

  void ExpectTheFullBatch(const Case& each) {
    const bool doubles = GetParam() == at::kDouble;
    const double relative = doubles ? 1e-10 : 1e-5;
    const double absolute = doubles ? 1e-13 : 4e-5;  // of what is 0 but for rounding
    const MicrobatchesForTest data = DataOf(each);
    const MicrobatchesForTest whole = {{at::cat(data.x)}, {at::cat(data.y)}};
    const StepForTest expected = InOneProcess(JobOf(each, 2), each.layout, whole);
    for (const uint32_t stages : {2U, 4U}) {
      const StepForTest step = StagesForTest(JobOf(each, stages), each.layout).Run(data, false);
      ASSERT_EQ(step.size(), expected.size());
      for (const auto& [name, value] : expected) {
        ASSERT_EQ(step.count(name), 1U) << name;
        EXPECT_EQ(step.at(name).scalar_type(), GetParam());
        EXPECT_TRUE(at::allclose(step.at(name), value, relative, absolute))
            << name << " in " << stages << " stages: off by up to "
            << (step.at(name) - value).abs().max().item().toDouble();
      }
    }
  }
};

TEST_P(FullBatchTest, OfTokens) { ExpectTheFullBatch(Transformer()); }
TEST_P(FullBatchTest, OfTokensWithSkipConnections) { ExpectTheFullBatch(TransformerWithSkips()); }
TEST_P(FullBatchTest, OfImages) { ExpectTheFullBatch(Images()); }

INSTANTIATE_TEST_SUITE_P(Types, FullBatchTest, ::testing::Values(at::kFloat, at::kDouble),
                         [](const auto& info) { return std::string(at::toString(info.param)); });

}  // namespace
}  // namespace parley
