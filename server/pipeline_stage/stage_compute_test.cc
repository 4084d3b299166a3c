#include "server/pipeline_stage/stage_compute.h"

#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "client/torch/testing/fake_session.h"
#include "server/pipeline_stage/stages_for_test.h"
#include "worker/device/fake_device.h"

namespace parley {
namespace {

using ::testing::IsEmpty;

constexpr uint32_t kMicrobatches = 3;

JobConfig Job(bool recompute, PipelineSchedule schedule = ONE_F_ONE_B) {
  JobConfig job;
  job.set_seed(7);
  job.set_loss(CROSS_ENTROPY);
  job.mutable_cluster()->set_workers(1);
  job.mutable_cluster()->set_stages(2);
  job.mutable_pipeline()->set_schedule(schedule);
  job.mutable_pipeline()->set_parts_per_stage(1);
  job.mutable_pipeline()->set_recompute(recompute);
  job.mutable_model()->mutable_resnet()->set_depth(18);
  job.mutable_model()->mutable_resnet()->set_classes(4);
  return job;
}

SampleLayout Images() {
  SampleLayout layout;
  layout.dtype = F32;
  layout.shape = {3, 16, 16};
  return layout;
}

MicrobatchesForTest Data() {
  MicrobatchesForTest data;
  for (uint32_t k = 0; k < kMicrobatches; ++k) {
    const int64_t samples = k + 1 == kMicrobatches ? 2 : 3;  // an uneven last one
    data.x.push_back(at::rand({samples, 3, 16, 16}));
    data.y.push_back(at::randint(4, {samples}, at::kLong));
  }
  return data;
}

void ExpectSame(const StepForTest& got, const StepForTest& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_EQ(got.count(name), 1U) << name;
    EXPECT_TRUE(at::equal(got.at(name), tensor)) << what << ": " << name;
  }
}

class StageComputeTest : public ::testing::Test {
 protected:
  // LibTorch's threads would wait for each other where other tests have the cores.
  static void SetUpTestSuite() { at::set_num_threads(1); }
};

TEST_F(StageComputeTest, TwoPartsGiveTheGradientsAndStatisticsOfTheWholeBitForBit) {
  const MicrobatchesForTest data = Data();
  const StepForTest expected = InOneProcess(Job(false), Images(), data);
  const auto in_parts = [&](const JobConfig& job, bool halves) {
    return StagesForTest(job, Images()).Run(data, halves);
  };
  ExpectSame(in_parts(Job(false), /*halves=*/false), expected, "whole backwards");
  ExpectSame(in_parts(Job(true), /*halves=*/false), expected, "computed again");
  for (const bool recompute : {false, true}) {
    ExpectSame(in_parts(Job(recompute, ZERO_BUBBLE), /*halves=*/true), expected, "halves");
  }
}

// Whoever forgets to wait, or to copy, is found: by what the device says of the order, or the bits.
TEST_F(StageComputeTest, OnDevicesTheyGiveTheSame) {
  const MicrobatchesForTest data = Data();
  const StepForTest expected = InOneProcess(Job(false), Images(), data);
  for (const PipelineSchedule schedule : {ONE_F_ONE_B, ZERO_BUBBLE}) {
    for (const bool recompute : {false, true}) {
      FakeDevice first({.for_tensors_of_the_cpu = true});
      FakeDevice second({.index = 1, .for_tensors_of_the_cpu = true});
      ExpectSame(StagesForTest(Job(recompute, schedule), Images(), {&first, &second})
                     .Run(data, schedule == ZERO_BUBBLE),
                 expected, "on devices");
      EXPECT_THAT(first.violations(), IsEmpty());
      EXPECT_THAT(second.violations(), IsEmpty());
    }
  }
}

TEST_F(StageComputeTest, ADeviceThatHangsEndsTheForwardOfTheLastPart) {
  const MicrobatchesForTest data = Data();
  const JobConfig job = Job(false);
  const PipelineModel model = *PlanPipeline(job, Images());
  FakeDevice device({.for_tensors_of_the_cpu = true});
  FakeSession session({}, 1.0);
  const auto stage = *StageCompute::Make(job, model, 1, &device);
  ASSERT_TRUE(stage->Attach(session, data.samples(), 0).ok());
  const auto before = *StageCompute::Make(job, model, 0);
  ASSERT_TRUE(before->Forward(0, 0, {data.x[0]}, 0, nullptr).ok());
  device.Stall(StreamId::kCompute);
  const StageCompute::Target target = {data.y[0], 3, 3};
  const auto inputs = stage->FromHost(before->TakeOutputs(0, 0));
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  const absl::Status status = stage->Forward(1, 0, *inputs, 0, &target);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
}

// What a stage's input gradient is waited for by others; this half must not do what nobody waits
// for.
TEST_F(StageComputeTest, TheFirstHalfLeavesTheWeightsOfConvolutions) {
  const MicrobatchesForTest data = Data();
  const JobConfig job = Job(false, ZERO_BUBBLE);
  const PipelineModel model = *PlanPipeline(job, Images());
  FakeSession session({}, 1.0);
  const auto stage = *StageCompute::Make(job, model, 0);
  ASSERT_TRUE(stage->Attach(session, data.samples(), 0).ok());
  stage->Begin();
  ASSERT_TRUE(stage->Forward(0, 0, {data.x[0]}, 0, nullptr).ok());
  ASSERT_TRUE(stage->InputGradient(0, 0, {at::ones_like(stage->TakeOutputs(0, 0).at(0))}).ok());
  const std::vector<TensorSpec>& specs = stage->binding().specs();
  const auto gathered = [&](const std::string& name) {
    for (size_t i = 0; i < specs.size(); ++i) {
      if (specs[i].name() != name) continue;
      for (const std::byte byte : session.gradient(i)) {
        if (byte != std::byte{0}) return true;
      }
    }
    return false;
  };
  EXPECT_TRUE(gathered("bn1.weight"));
  EXPECT_FALSE(gathered("conv1.weight"));
  ASSERT_TRUE(stage->WeightGradient(0, 0).ok());
  EXPECT_TRUE(gathered("conv1.weight"));
}

TEST_F(StageComputeTest, WhoComputesForwardsAgainKeepsTheirInputsOnly) {
  const MicrobatchesForTest data = Data();
  for (const PipelineSchedule schedule : {ONE_F_ONE_B, ZERO_BUBBLE}) {
    const JobConfig job = Job(true, schedule);
    const PipelineModel model = *PlanPipeline(job, Images());
    FakeSession session({}, 1.0);
    const auto stage = *StageCompute::Make(job, model, 0);
    ASSERT_TRUE(stage->Attach(session, data.samples(), 0).ok());
    stage->Begin();
    uint64_t inputs = 0;
    for (uint32_t k = 0; k < kMicrobatches; ++k) {
      ASSERT_TRUE(stage->Forward(0, k, {data.x[k]}, k, nullptr).ok());
      const LayerFlow sent = stage->TakeOutputs(0, k);
      ASSERT_EQ(sent.size(), 1U);
      inputs += data.x[k].nbytes();
      EXPECT_EQ(stage->kept_bytes(), inputs);
      EXPECT_EQ(sent[0].storage().use_count(), 1U) << "it goes when it has been sent";
    }
    // And whoever has not taken them keeps them: the next part, if it is here.
    ASSERT_TRUE(stage->Forward(0, kMicrobatches, {data.x[0]}, 0, nullptr).ok());
    EXPECT_GT(stage->kept_bytes(), inputs + data.x[0].nbytes());
  }
}

TEST_F(StageComputeTest, ABackwardWithoutItsForwardIsAnError) {
  const JobConfig job = Job(false);
  const PipelineModel model = *PlanPipeline(job, Images());
  const auto stage = *StageCompute::Make(job, model, 0);
  EXPECT_TRUE(absl::IsInternal(stage->Backward(0, 5, {})));
}

}  // namespace
}  // namespace parley
