#include "worker/local_compute.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/dropout.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "client/torch/testing/fake_session.h"
#include "common/metrics/metrics.h"
#include "worker/data/datasets.h"
#include "worker/data/in_memory_source.h"
#include "worker/device/fake_device.h"
#include "worker/models/layered_network.h"

namespace parley {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr size_t kSteps = 6;
constexpr size_t kPlanned = kSteps + 4;  // there is always something to read ahead
constexpr uint64_t kSamples = 40;

// Rows of three numbers that say which sample it is, and one to learn.
class CountedSource final : public DataSource {
 public:
  CountedSource() : rows_(kSamples, kX, kY, Numbers(3), Numbers(1)) {}
  uint64_t size() const override { return kSamples; }
  const SampleLayout& x() const override { return rows_.x(); }
  const SampleLayout& y() const override { return rows_.y(); }
  absl::Status FillX(const Draw& draw, absl::Span<std::byte> x) const override {
    absl::MutexLock lock(&mu_);
    ++begun_;
    return rows_.FillX(draw, x);
  }
  absl::Status FillY(const Draw& draw, absl::Span<std::byte> y) const override {
    return rows_.FillY(draw, y);
  }
  // Whether it comes to that.
  bool AwaitBegun(size_t batches) const {
    const auto enough = [&] { return begun_ >= batches; };
    absl::MutexLock lock(&mu_);
    return mu_.AwaitWithTimeout(absl::Condition(&enough), absl::Seconds(10));
  }

 private:
  static inline const SampleLayout kX = {F32, {3}, 0};
  static inline const SampleLayout kY = {F32, {1}, 0};
  static std::vector<std::byte> Numbers(size_t of_a_row) {
    std::vector<float> numbers(kSamples * of_a_row);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i % 17) / 8 - 1;
    std::vector<std::byte> bytes(numbers.size() * sizeof(float));
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
    return bytes;
  }
  const RowSource rows_;
  mutable absl::Mutex mu_;
  mutable size_t begun_ ABSL_GUARDED_BY(mu_) = 0;
};

// A linear layer, and how often it was computed, by which its outputs are divided.
class LinearNetwork final : public Network {
 public:
  LinearNetwork() {
    torch::manual_seed(7);
    module_ = std::make_shared<torch::nn::Module>();
    linear_ = module_->register_module("linear", torch::nn::Linear(3, 1));
  }
  at::Tensor Forward(const at::Tensor& x) override {
    on_forward();
    if (replaces_count || (replaces_count_of_few && x.size(0) < 4)) {
      count_ = count_ + 1;
    } else {
      count_.add_(1);
    }
    return linear_(x) / count_;
  }
  void SetTraining(bool /*training*/) override {}
  std::vector<NamedTensor> Tensors() const override {
    std::vector<NamedTensor> tensors = TensorsOf(*module_);
    tensors.push_back({"count", count_, /*buffer=*/true});
    return tensors;
  }

  std::function<void()> on_forward = [] {};
  bool replaces_count = false;  // as `self.count = self.count + 1` does
  bool replaces_count_of_few = false;

 private:
  std::shared_ptr<torch::nn::Module> module_;
  torch::nn::Linear linear_{nullptr};
  at::Tensor count_ = torch::zeros({1});
};

// Tells apart what it copies by its size.
class CountingDevice final : public FakeDevice {
 public:
  static constexpr size_t kBatchBytes = 4 * 3 * sizeof(float);
  explicit CountingDevice(bool records_graphs)
      : FakeDevice({.for_tensors_of_the_cpu = true, .records = records_graphs}) {}
  absl::Status CopyToDevice(StreamId stream, std::byte* device, const std::byte* host,
                            size_t bytes) override {
    if (bytes == kBatchBytes) ++batches;
    return FakeDevice::CopyToDevice(stream, device, host, bytes);
  }
  // As LibTorch: nobody may seed its generators while it records.
  absl::StatusOr<std::unique_ptr<DeviceGraph>> MakeGraph() override {
    class Seedless final : public DeviceGraph {
     public:
      explicit Seedless(std::unique_ptr<DeviceGraph> graph) : graph_(std::move(graph)) {}
      absl::Status Run(absl::FunctionRef<void()> compute) override {
        return graph_->Run([&] {
          const at::Generator& generator = at::detail::getDefaultCPUGenerator();
          const uint64_t seed = generator.current_seed();
          compute();
          TORCH_CHECK(generator.current_seed() == seed, "a seed was set while it was recorded");
        });
      }

     private:
      const std::unique_ptr<DeviceGraph> graph_;
    };
    auto graph = FakeDevice::MakeGraph();
    if (!graph.ok()) return graph.status();
    return std::make_unique<Seedless>(*std::move(graph));
  }
  void BeginStep() override { steps.push_back("begin"); }
  void EndStep() override { steps.push_back("end"); }
  size_t batches = 0;
  std::vector<std::string> steps;
};

std::vector<StepPlan> Plans(uint64_t from) {
  std::vector<StepPlan> plans(kPlanned);
  for (size_t i = 0; i < plans.size(); ++i) {
    plans[i].step = i + 1;
    plans[i].weight = 1;
    SampleRange range;  // another one in each step: seeds are made of it
    range.set_begin(from + 4 * i);
    range.set_end(from + 4 * i + 4);
    plans[i].ranges = {range};
    for (uint64_t k = 0; k < 4; ++k) plans[i].samples.push_back((from + 4 * i + k) % kSamples);
  }
  return plans;
}

std::vector<StepPlan> From(const std::vector<StepPlan>& plans, size_t step) {
  return {plans.begin() + static_cast<std::ptrdiff_t>(step), plans.end()};
}

// A table of which a step uses one value.
class TableNetwork final : public Network {
 public:
  TableNetwork() {
    module_ = std::make_shared<torch::nn::Module>();
    table_ = module_->register_parameter("table", torch::ones({300, 1024}));
  }
  at::Tensor Forward(const at::Tensor& x) override {
    return x.narrow(1, 0, 1) * table_.narrow(0, 7, 1).narrow(1, 5, 1);
  }
  void SetTraining(bool /*training*/) override {}
  std::vector<NamedTensor> Tensors() const override { return TensorsOf(*module_); }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  at::Tensor table_;
};

struct Trained {
  size_t without_zeros = 0;  // gradients of the first tensor
  std::vector<double> losses;
  std::vector<size_t> brought;  // batches, before each step
  std::vector<std::string> violations;
  std::vector<std::string> steps;
  size_t graph_runs = 0;
};

// wrong: before these steps others are expected than come. begun: how many batches are begun to be
// read when each step's forward begins, for all that is expected to be there: then the last but one
// is; nothing is awaited without.
// graphs: whether the job wants them. short_step: it has a sample less.
struct Graphs {
  bool wanted = false;
  bool recorded = true;
  size_t short_step = kPlanned;
  bool replaces_count = false;
  bool replaces_count_of_few = false;
  Network* network = nullptr;  // in place of a LinearNetwork
  uint32_t group = 1;          // workers of a node group
};
Trained Train(bool on_device, size_t prefetch, const std::vector<size_t>& wrong = {},
              const std::vector<size_t>& begun = {}, const Graphs& graphs = {}) {
  JobConfig job;
  job.set_cuda_graphs(graphs.wanted);
  job.mutable_cluster()->set_group(graphs.group);
  job.mutable_data()->set_batch(4);
  job.mutable_data()->set_prefetch(prefetch);
  job.set_loss(MEAN_SQUARED_ERROR);
  const auto source = std::make_shared<CountedSource>();
  const Datasets data = {source, nullptr};
  std::vector<StepPlan> plans = Plans(0);
  if (graphs.short_step < plans.size()) plans[graphs.short_step].samples.pop_back();
  FakeSession session(plans, 0.1);
  CountingDevice device(graphs.recorded);
  LinearNetwork network;
  network.replaces_count = graphs.replaces_count;
  network.replaces_count_of_few = graphs.replaces_count_of_few;
  Metrics metrics;
  TrainingMetrics training_metrics(metrics);
  Trained trained;
  {
    LocalCompute compute({job, graphs.network == nullptr ? network : *graphs.network, data, session,
                          training_metrics, on_device ? &device : nullptr});
    EXPECT_TRUE(compute.Attach().ok());
    for (size_t step = 0; step < kSteps; ++step) {
      const bool is_wrong = std::find(wrong.begin(), wrong.end(), step) != wrong.end();
      compute.Expect(From(is_wrong ? Plans(20) : plans, step));
      network.on_forward = [&] {
        EXPECT_TRUE(begun.empty() || source->AwaitBegun(begun[step])) << "step " << step;
      };
      const auto plan = session.NextStep();
      EXPECT_TRUE(plan.has_value());
      trained.brought.push_back(device.batches);
      const auto verdict = compute.Step(*plan);
      EXPECT_TRUE(verdict.ok()) << verdict.status();
      // In place of what was brought ahead another one is read.
      EXPECT_TRUE(begun.empty() || source->AwaitBegun(begun[step] + 1)) << "step " << step;
      // Both ways: so that a graph's parameters are also those that nobody has asked for yet.
      EXPECT_TRUE(compute.Pull(/*ahead=*/step % 2 == 1).ok());
      EXPECT_TRUE(compute.PullEvaluation().ok());
    }
  }
  trained.without_zeros = session.pushed_nonzero(0).size();
  trained.losses = session.losses();
  trained.violations = device.violations();
  trained.steps = device.steps;
  trained.graph_runs = device.graph_runs();
  return trained;
}

TEST(LocalComputeTest, ADeviceHasTheNextStepsSamplesBeforeThisOneEnds) {
  // The first step's, the next one's, and one more; then one more in each step.
  const Trained trained = Train(/*on_device=*/true, /*prefetch=*/2, {}, {3, 4, 5, 6, 7, 8});
  EXPECT_THAT(trained.brought, ElementsAre(0, 2, 3, 4, 5, 6));
  EXPECT_THAT(trained.violations, IsEmpty());
}

TEST(LocalComputeTest, ADevicesStepEndsBeforeAnEvaluationMayBegin) {
  const Trained trained = Train(/*on_device=*/true, /*prefetch=*/2);
  std::vector<std::string> expected;
  for (size_t step = 0; step < kSteps; ++step) {
    expected.emplace_back("begin");
    expected.emplace_back("end");
  }
  EXPECT_EQ(trained.steps, expected);
}

TEST(LocalComputeTest, WhatWasBroughtInVainIsDropped) {
  // Before the second step, whose samples have been brought, two others are read; of these one is
  // brought. Before the third that is dropped, and what is right is read: its own, and two more.
  const Trained trained = Train(/*on_device=*/true, /*prefetch=*/2, {1}, {3, 6, 10, 11, 12, 13});
  EXPECT_THAT(trained.brought, ElementsAre(0, 2, 3, 5, 6, 7));
  EXPECT_THAT(trained.violations, IsEmpty());
  EXPECT_EQ(trained.losses, Train(/*on_device=*/false, 0).losses) << "the same bits";
}

TEST(LocalComputeTest, WhatIsBroughtAheadChangesNothing) {
  const std::vector<double> losses = Train(/*on_device=*/false, 0).losses;
  EXPECT_EQ(losses.size(), kSteps);
  for (const auto& wrong : {std::vector<size_t>{}, {1}, {0, 2, 3, 4}}) {
    const Trained trained = Train(/*on_device=*/true, 2, wrong);
    EXPECT_EQ(trained.losses, losses) << "the same bits";
    EXPECT_THAT(trained.violations, IsEmpty());
  }
  EXPECT_EQ(Train(/*on_device=*/true, 0).losses, losses);
}

// A rank's gradients hold the group's sums after a step.
TEST(LocalComputeTest, ZerosAreLeftOutWhereNobodyElseWritesToGradients) {
  for (const uint32_t group : {1, 2}) {
    TableNetwork network;
    const Trained trained =
        Train(/*on_device=*/true, 0, {}, {}, {.network = &network, .group = group});
    EXPECT_EQ(trained.without_zeros, group == 1 ? kSteps - 1 : 0) << "the first one is looked at";
    EXPECT_THAT(trained.violations, IsEmpty());
  }
}

TEST(LocalComputeTest, StepsAsGraphsComeToTheSameBits) {
  for (const size_t short_step : {size_t{1}, size_t{4}, kPlanned}) {
    const std::vector<double> losses =
        Train(/*on_device=*/false, 0, {}, {}, {.short_step = short_step}).losses;
    const Trained trained =
        Train(/*on_device=*/true, 2, {}, {}, {.wanted = true, .short_step = short_step});
    EXPECT_EQ(trained.losses, losses);
    EXPECT_THAT(trained.violations, IsEmpty());
    EXPECT_EQ(trained.graph_runs, kSteps - GraphChoice::kFirstSteps - (short_step == 4 ? 1 : 0));
  }
}

TEST(LocalComputeTest, AStepThatCannotBeRecordedIsComputedAsUsual) {
  const Trained trained = Train(/*on_device=*/true, 2, {}, {}, {.wanted = true, .recorded = false});
  EXPECT_EQ(trained.losses, Train(/*on_device=*/false, 0).losses);
  EXPECT_THAT(trained.violations, IsEmpty());
  EXPECT_EQ(trained.graph_runs, 0);
}

TEST(LocalComputeTest, WhereForwardGivesABufferOtherMemoryNoGraphIsUsed) {
  const Trained trained =
      Train(/*on_device=*/true, 2, {}, {}, {.wanted = true, .replaces_count = true});
  EXPECT_EQ(trained.losses, Train(/*on_device=*/false, 0).losses);
  EXPECT_THAT(trained.violations, IsEmpty());
  EXPECT_EQ(trained.graph_runs, 1) << "the recording that shows it";
}

TEST(LocalComputeTest, AGraphWhoseBuffersHaveOtherMemorySinceIsNotRun) {
  const Trained trained = Train(/*on_device=*/true, 2, {}, {},
                                {.wanted = true, .short_step = 4, .replaces_count_of_few = true});
  EXPECT_EQ(trained.losses, Train(/*on_device=*/false, 0, {}, {}, {.short_step = 4}).losses);
  EXPECT_THAT(trained.violations, IsEmpty());
  EXPECT_EQ(trained.graph_runs, 1) << "before the short step";
}

TEST(LocalComputeTest, NothingIsSeededWhileItIsRecorded) {
  const at::Tensor weight = torch::ones({3, 1}).requires_grad_();
  const auto forward = [weight](const at::Tensor& x, bool training) {
    return at::dropout(x.matmul(weight), 0.5, training);
  };
  LayeredNetwork network({{.name = "layer", .forward = forward, .tensors = {{"weight", weight}}}},
                         /*first_layer=*/0);
  const Trained trained =
      Train(/*on_device=*/true, 2, {}, {}, {.wanted = true, .network = &network});
  EXPECT_EQ(trained.graph_runs, kSteps - GraphChoice::kFirstSteps);
  EXPECT_THAT(trained.violations, IsEmpty());
}

}  // namespace
}  // namespace parley
