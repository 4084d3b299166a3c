#include "worker/models/layered_network.h"

#include <ATen/ops/alias.h>
#include <c10/util/Exception.h>

#include <unordered_set>
#include <utility>

#include "common/seed.h"
#include "worker/models/resnet.h"
#include "worker/models/simple_cnn.h"
#include "worker/models/sleeping.h"
#include "worker/models/transformer.h"
#include "worker/models/vgg.h"
#include "worker/models/xresnet.h"

namespace parley {

absl::StatusOr<std::vector<LayerPlan>> PlanLayers(const JobConfig& job, const SampleLayout& x) {
  switch (job.model().kind_case()) {
    case Model::kSimpleCnn:
      return PlanSimpleCnn(job.model().simple_cnn(), x);
    case Model::kResnet:
      return PlanResNet(job.model().resnet(), x);
    case Model::kVgg19:
      return PlanVgg19(job.model().vgg19(), x);
    case Model::kXresnet50:
      return PlanXResNet50(job.model().xresnet50(), x);
    case Model::kTransformer:
      return PlanTransformer(job.model().transformer(), x);
    case Model::kSleeping:
      return PlanSleeping(job.model().sleeping(), x);
    default:
      return absl::InvalidArgumentError(
          "model: only simple_cnn, resnet, vgg19, xresnet50 and transformer can be cut into the "
          "parts of a pipeline");
  }
}

LayerPlan PlanLayer(std::string name, std::function<LayerForward(LayerSet& tensors)> make) {
  return {name, [name, make = std::move(make)](LayerSet& tensors) {
            tensors.TakeUsed();  // of others
            NetworkLayer layer;
            layer.name = name;
            layer.forward = make(tensors);
            layer.tensors = tensors.TakeUsed();
            return layer;
          }};
}

LayeredNetwork::LayeredNetwork(std::vector<NetworkLayer> layers, size_t first_layer)
    : layers_(std::move(layers)), first_layer_(first_layer) {}

void RunLayer(const NetworkLayer& layer, bool training, LayerFlow& flow) {
  at::Tensor& h = flow.at(0);
  if (layer.join) {
    TORCH_CHECK(flow.size() > 1, "layer ", layer.name, " joins what no layer has kept");
    h = layer.join(h, flow.back());
    flow.pop_back();
  }
  h = layer.forward(h, training);
  if (!layer.keeps) return;
  const at::Tensor kept = h;
  // So that the gradients of all that the next layers do with it are added before this one's are,
  // as they are where the network is cut between: sums of floats depend on their order.
  h = at::alias(h);
  flow.push_back(kept);
}

at::Tensor LayeredNetwork::Forward(const at::Tensor& x) { return Run({x}).at(0); }

LayerFlow LayeredNetwork::Run(LayerFlow flow) {
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (seed_.has_value()) Network::Seed(DeriveSeed(*seed_, "layer", {first_layer_ + i}));
    RunLayer(layers_[i], training_, flow);
  }
  return flow;
}

std::vector<NamedTensor> LayeredNetwork::Tensors() const {
  std::vector<NamedTensor> tensors;
  std::unordered_set<std::string> seen;
  for (const bool buffers : {false, true}) {
    for (const NetworkLayer& layer : layers_) {
      for (const NamedTensor& named : layer.tensors) {
        if (named.buffer == buffers && seen.insert(named.name).second) tensors.push_back(named);
      }
    }
  }
  return tensors;
}

}  // namespace parley
