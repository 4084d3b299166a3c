#include "worker/models/layer_profile.h"

#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "client/torch/dtype.h"
#include "client/torch/torch_status.h"
#include "common/clock/steady_now.h"
#include "worker/models/layers.h"

namespace parley {
namespace {

constexpr size_t kLeastRounds = 3;

absl::Duration Median(std::vector<absl::Duration> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

LayerFlow Fresh(const LayerFlow& flow) {
  LayerFlow fresh;
  for (const at::Tensor& tensor : flow) {
    at::Tensor& own = fresh.emplace_back(tensor.detach());
    if (own.is_floating_point()) own.requires_grad_(true);
  }
  return fresh;
}

// Memory that LibTorch's CPU allocator has given out and not got back, as its profiler counts it.
class AllocatedBytes final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*ptr*/, int64_t bytes, size_t /*allocated*/, size_t /*reserved*/,
                         c10::Device /*device*/) override {
    bytes_ += bytes;
  }
  bool memoryProfilingEnabled() const override { return true; }
  uint64_t bytes() const { return static_cast<uint64_t>(std::max(bytes_.load(), int64_t{0})); }

 private:
  std::atomic<int64_t> bytes_ = 0;
};

// Of one forward, as long as its outputs are there.
uint64_t KeptBytes(const NetworkLayer& layer, LayerFlow flow) {
  const auto allocated = std::make_shared<AllocatedBytes>();
  const c10::DebugInfoGuard counted(c10::DebugInfoKind::PROFILER_STATE, allocated);
  RunLayer(layer, /*training=*/true, flow);
  return allocated->bytes();
}

void RunBackward(const LayerFlow& outputs) {
  LayerFlow roots, gradients;
  for (const at::Tensor& output : outputs) {
    if (!output.requires_grad()) continue;
    roots.push_back(output);
    gradients.push_back(at::ones_like(output));
  }
  if (!roots.empty()) torch::autograd::backward(roots, gradients);
}

// Takes the flow through the layer.
LayerCost Profile(const LayerPlan& plan, absl::Duration budget, LayerFlow& flow) {
  LayerSet tensors(/*seed=*/1);
  const NetworkLayer layer = plan.make(tensors);
  std::vector<absl::Duration> forwards, backwards;
  LayerFlow outputs;
  const absl::Time end = SteadyNow() + budget;
  const uint64_t kept = KeptBytes(layer, Fresh(flow));
  // The first round is not counted: memory is new, and kernels choose.
  for (size_t round = 0; round <= kLeastRounds || SteadyNow() < end; ++round) {
    outputs = Fresh(flow);
    const absl::Time begin = SteadyNow();
    RunLayer(layer, /*training=*/true, outputs);
    const absl::Time between = SteadyNow();
    RunBackward(outputs);
    if (round == 0) continue;
    forwards.push_back(between - begin);
    backwards.push_back(SteadyNow() - between);
  }
  LayerCost cost = {plan.name, Median(forwards), Median(backwards), 0, kept};
  flow.clear();
  for (const at::Tensor& output : outputs) {
    cost.output_bytes += output.nbytes();
    flow.push_back(output.detach());
  }
  return cost;
}

}  // namespace

absl::StatusOr<std::vector<LayerCost>> ProfileLayers(const std::vector<LayerPlan>& layers,
                                                     const SampleLayout& x, uint64_t samples,
                                                     absl::Duration budget) {
  std::vector<LayerCost> costs;
  const absl::Status status = CatchTorch("profiling the model's layers", [&] {
    std::vector<int64_t> shape = {static_cast<int64_t>(samples)};
    shape.insert(shape.end(), x.shape.begin(), x.shape.end());
    LayerFlow flow = {at::zeros(shape, at::TensorOptions().dtype(*ToScalarType(x.dtype)))};
    for (const LayerPlan& plan : layers) {
      costs.push_back(Profile(plan, budget / static_cast<double>(layers.size()), flow));
    }
  });
  if (!status.ok()) return status;
  return costs;
}

}  // namespace parley
