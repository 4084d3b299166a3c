#include "server/pipeline_stage/stages_for_test.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "client/torch/dtype.h"
#include "worker/loss.h"
#include "worker/models/network.h"

namespace parley {
namespace {

constexpr uint64_t kAnySamples = 64;

// As they come from another stage.
LayerFlow FromHost(StageCompute& stage, LayerFlow flow) {
  absl::StatusOr<LayerFlow> there = stage.FromHost(std::move(flow));
  EXPECT_TRUE(there.ok()) << there.status();
  return *std::move(there);
}

LayerFlow ToHost(StageCompute& stage, LayerFlow flow) {
  absl::StatusOr<LayerFlow> here = stage.ToHost(std::move(flow));
  EXPECT_TRUE(here.ok()) << here.status();
  return *std::move(here);
}

void Backward(StageCompute& stage, uint32_t part, uint32_t k, const LayerFlow& gradients,
              bool halves) {
  if (!halves) {
    const absl::Status done = stage.Backward(part, k, gradients);
    EXPECT_TRUE(done.ok()) << done;
    return;
  }
  absl::Status done = stage.InputGradient(part, k, gradients);
  EXPECT_TRUE(done.ok()) << done;
  done = stage.WeightGradient(part, k);
  EXPECT_TRUE(done.ok()) << done;
}

StepPlan OneStep() {
  StepPlan plan;
  plan.step = 1;
  plan.weight = 1;
  for (uint64_t sample = 0; sample < kAnySamples; ++sample) plan.samples.push_back(sample);
  return plan;
}

}  // namespace

uint64_t MicrobatchesForTest::samples() const {
  uint64_t samples = 0;
  for (const at::Tensor& each : x) samples += static_cast<uint64_t>(each.size(0));
  return samples;
}

StepForTest InOneProcess(const JobConfig& job, const SampleLayout& layout,
                         const MicrobatchesForTest& data) {
  StepForTest step;
  const auto network = MakeNetwork(job, layout);
  EXPECT_TRUE(network.ok()) << network.status();
  const auto all = static_cast<double>(data.samples());
  for (size_t k = 0; k < data.x.size(); ++k) {
    (*network)->Seed(k);
    const at::Tensor loss = ComputeLoss(LossOf(job), (*network)->Forward(data.x[k]), data.y[k]);
    loss.mul(static_cast<double>(data.x[k].size(0)) / all).backward();
  }
  for (const NamedTensor& named : (*network)->Tensors()) {
    step[named.name] = named.buffer ? named.tensor.clone() : named.tensor.grad().clone();
  }
  return step;
}

StagesForTest::StagesForTest(const JobConfig& job, const SampleLayout& layout,
                             const std::vector<ComputeDevice*>& on)
    : job_(job), model_(*PlanPipeline(job_, layout)) {
  for (uint32_t stage = 0; stage < job_.cluster().stages(); ++stage) {
    sessions_.push_back(std::make_unique<FakeSession>(std::vector<StepPlan>{OneStep()}, 1.0));
    ComputeDevice* const device = on.empty() ? nullptr : on[stage];
    stages_.push_back(*StageCompute::Make(job_, model_, stage, device));
    EXPECT_TRUE(stages_.back()->Attach(*sessions_.back(), kAnySamples, 0).ok());
    EXPECT_TRUE(sessions_.back()->NextStep().has_value());
    stages_.back()->Begin();
  }
}

StepForTest StagesForTest::Run(const MicrobatchesForTest& data, bool halves) {
  const auto last = static_cast<uint32_t>(stages_.size() - 1);
  for (uint32_t k = 0; k < data.x.size(); ++k) {
    const StageCompute::Target target = {FromHost(*stages_[last], {data.y[k]}).at(0),
                                         static_cast<uint64_t>(data.x[k].size(0)), data.samples()};
    LayerFlow flow = {data.x[k]};
    for (uint32_t part = 0; part <= last; ++part) {
      const absl::Status forward = stages_[part]->Forward(part, k, FromHost(*stages_[part], flow),
                                                          k, part == last ? &target : nullptr);
      EXPECT_TRUE(forward.ok()) << forward;
      flow = ToHost(*stages_[part], stages_[part]->TakeOutputs(part, k));
    }
  }
  for (uint32_t k = 0; k < data.x.size(); ++k) {
    LayerFlow gradients;
    for (uint32_t part = last + 1; part-- > 0;) {
      Backward(*stages_[part], part, k, FromHost(*stages_[part], gradients), halves);
      gradients = ToHost(*stages_[part], stages_[part]->TakeInputGradients(part, k));
      EXPECT_EQ(gradients.empty(), part == 0);
    }
  }
  StepForTest step;
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    EXPECT_EQ(stages_[stage]->kept(), 0U);
    EXPECT_TRUE(stages_[stage]->Update(static_cast<uint32_t>(stage)).ok());
    Collect(stage, step);
  }
  return step;
}

void StagesForTest::Collect(size_t stage, StepForTest& step) {
  EXPECT_FALSE(sessions_[stage]->PushedNames().empty());
  EXPECT_TRUE(stages_[stage]->binding().Complete(0).ok());  // buffers
  const std::vector<TensorSpec>& specs = stages_[stage]->binding().specs();
  for (size_t i = 0; i < specs.size(); ++i) {
    const std::vector<int64_t> shape(specs[i].shape().begin(), specs[i].shape().end());
    at::Tensor value = at::empty(shape, *ToScalarType(specs[i].dtype()));
    std::memcpy(value.mutable_data_ptr(), sessions_[stage]->gradient(i).data(), value.nbytes());
    step[specs[i].name()] = value;
  }
}

}  // namespace parley
