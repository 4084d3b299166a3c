#include "server/pipeline_stage/stage_compute.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/torch/testing/fake_session.h"
#include "worker/loss.h"
#include "worker/models/network.h"

namespace parley {
namespace {

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

struct Data {
  std::vector<at::Tensor> x, y;
};

Data MakeData() {
  Data data;
  for (uint32_t k = 0; k < kMicrobatches; ++k) {
    const int64_t samples = k + 1 == kMicrobatches ? 2 : 3;  // an uneven last one
    data.x.push_back(at::rand({samples, 3, 16, 16}));
    data.y.push_back(at::randint(4, {samples}, at::kLong));
  }
  return data;
}
constexpr uint64_t kSamples = 8;

// Gradients and buffers after a step, by name.
using Result = std::map<std::string, at::Tensor>;

// One process, microbatch by microbatch.
Result InOneProcess(const JobConfig& job, const Data& data) {
  Result result;
  const auto network = MakeNetwork(job, Images());
  EXPECT_TRUE(network.ok()) << network.status();
  for (uint32_t k = 0; k < kMicrobatches; ++k) {
    (*network)->Seed(k);
    at::Tensor loss = ComputeLoss(CROSS_ENTROPY, (*network)->Forward(data.x[k]), data.y[k]);
    loss.mul(static_cast<double>(data.x[k].size(0)) / static_cast<double>(kSamples)).backward();
  }
  for (const NamedTensor& named : (*network)->Tensors()) {
    result[named.name] = named.buffer ? named.tensor.clone() : named.tensor.grad().clone();
  }
  return result;
}

class TwoStages {
 public:
  explicit TwoStages(const JobConfig& job) : job_(job), model_(*PlanPipeline(job_, Images())) {
    for (uint32_t stage : {0, 1}) {
      sessions_.push_back(std::make_unique<FakeSession>(std::vector<StepPlan>{Plan()}, 1.0));
      stages_.push_back(*StageCompute::Make(job_, model_, stage));
      EXPECT_TRUE(stages_.back()->Attach(*sessions_.back(), kSamples, 0).ok());
      EXPECT_TRUE(sessions_.back()->NextStep().has_value());
      stages_.back()->Begin();
    }
  }

  // halves: input and weight gradients one after the other.
  Result Run(const Data& data, bool halves) {
    StageCompute& first = *stages_[0];
    StageCompute& second = *stages_[1];
    for (uint32_t k = 0; k < kMicrobatches; ++k) {
      const absl::Status forward = first.Forward(0, k, data.x[k], k, nullptr);
      EXPECT_TRUE(forward.ok()) << forward;
      const StageCompute::Target target = {data.y[k], static_cast<uint64_t>(data.x[k].size(0)),
                                           kSamples};
      EXPECT_TRUE(second.Forward(1, k, first.output(0, k), k, &target).ok());
    }
    for (uint32_t k = 0; k < kMicrobatches; ++k) {
      Backward(second, 1, k, at::Tensor(), halves);
      const at::Tensor gradient = second.TakeInputGradient(1, k);
      EXPECT_TRUE(gradient.defined());
      Backward(first, 0, k, gradient, halves);
      first.TakeInputGradient(0, k);
    }
    EXPECT_EQ(first.kept(), 0U);
    EXPECT_EQ(second.kept(), 0U);
    Result result;
    for (const size_t stage : {0, 1}) {
      EXPECT_TRUE(stages_[stage]->Update(static_cast<uint32_t>(stage)).ok());
      Collect(stage, result);
    }
    return result;
  }

 private:
  static StepPlan Plan() {
    StepPlan plan;
    plan.step = 1;
    plan.weight = 1;
    for (uint64_t sample = 0; sample < kSamples; ++sample) plan.samples.push_back(sample);
    return plan;
  }

  static void Backward(StageCompute& stage, uint32_t part, uint32_t k, const at::Tensor& gradient,
                       bool halves) {
    if (!halves) {
      const absl::Status done = stage.Backward(part, k, gradient);
      EXPECT_TRUE(done.ok()) << done;
      return;
    }
    absl::Status done = stage.InputGradient(part, k, gradient);
    EXPECT_TRUE(done.ok()) << done;
    done = stage.WeightGradient(part, k);
    EXPECT_TRUE(done.ok()) << done;
  }

  void Collect(size_t stage, Result& result) {
    const std::vector<std::string> pushed = sessions_[stage]->PushedNames();
    EXPECT_TRUE(stages_[stage]->binding().Complete(0).ok());  // buffers
    const std::vector<TensorSpec>& specs = stages_[stage]->binding().specs();
    for (size_t i = 0; i < specs.size(); ++i) {
      const std::vector<int64_t> shape(specs[i].shape().begin(), specs[i].shape().end());
      const at::ScalarType type = specs[i].dtype() == I64 ? at::kLong : at::kFloat;
      at::Tensor value = at::empty(shape, type);
      std::memcpy(value.mutable_data_ptr(), sessions_[stage]->gradient(i).data(), value.nbytes());
      result[specs[i].name()] = value;
    }
    EXPECT_FALSE(pushed.empty());
  }

  const JobConfig job_;
  const PipelineModel model_;
  std::vector<std::unique_ptr<FakeSession>> sessions_;
  std::vector<std::unique_ptr<StageCompute>> stages_;
};

void ExpectSame(const Result& got, const Result& expected, const std::string& what) {
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
  const Data data = MakeData();
  const Result expected = InOneProcess(Job(false), data);
  ExpectSame(TwoStages(Job(false)).Run(data, /*halves=*/false), expected, "whole backwards");
  ExpectSame(TwoStages(Job(true)).Run(data, /*halves=*/false), expected, "computed again");
  for (const bool recompute : {false, true}) {
    ExpectSame(TwoStages(Job(recompute, ZERO_BUBBLE)).Run(data, /*halves=*/true), expected,
               "halves");
  }
}

// What a stage's input gradient is waited for by others; this half must not do what nobody waits
// for.
TEST_F(StageComputeTest, TheFirstHalfLeavesTheWeightsOfConvolutions) {
  const Data data = MakeData();
  const JobConfig job = Job(false, ZERO_BUBBLE);
  const PipelineModel model = *PlanPipeline(job, Images());
  FakeSession session({}, 1.0);
  const auto stage = *StageCompute::Make(job, model, 0);
  ASSERT_TRUE(stage->Attach(session, kSamples, 0).ok());
  stage->Begin();
  ASSERT_TRUE(stage->Forward(0, 0, data.x[0], 0, nullptr).ok());
  ASSERT_TRUE(stage->InputGradient(0, 0, at::ones_like(stage->output(0, 0))).ok());
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

TEST_F(StageComputeTest, ABackwardWithoutItsForwardIsAnError) {
  const JobConfig job = Job(false);
  const PipelineModel model = *PlanPipeline(job, Images());
  const auto stage = *StageCompute::Make(job, model, 0);
  EXPECT_TRUE(absl::IsInternal(stage->Backward(0, 5, at::Tensor())));
}

}  // namespace
}  // namespace parley
