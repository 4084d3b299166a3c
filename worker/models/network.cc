#include "worker/models/network.h"

#include <ATen/Context.h>

#include <utility>

#include "client/torch/torch_status.h"
#include "worker/models/layered_network.h"
#include "worker/models/torchscript.h"

namespace parley {

void Network::Seed(uint64_t seed) { at::manual_seed(seed); }

absl::StatusOr<std::unique_ptr<Network>> MakeNetwork(const JobConfig& job, const SampleLayout& x) {
  switch (job.model().kind_case()) {
    case Model::kTorchscript:
      return LoadTorchScript(job.model().torchscript());
    case Model::kOwn:
      return absl::InvalidArgumentError(
          "model: own {} is trained by a program of your own (docs/api.md, Your own program); "
          "parley-worker trains simple_cnn, resnet, vgg19, xresnet50, transformer and torchscript");
    case Model::KIND_NOT_SET:
      return absl::InvalidArgumentError(
          "model: simple_cnn, resnet, vgg19, xresnet50, transformer or torchscript must be set");
    default:
      break;
  }
  const auto plan = PlanLayers(job, x);
  if (!plan.ok()) return plan.status();
  std::unique_ptr<Network> network;
  const absl::Status made = CatchTorch("making the model", [&] {
    LayerSet tensors(job.seed());
    std::vector<NetworkLayer> layers;
    for (const LayerPlan& layer : *plan) layers.push_back(layer.make(tensors));
    network = std::make_unique<LayeredNetwork>(std::move(layers), /*first_layer=*/0);
  });
  if (!made.ok()) return made;
  return network;
}

}  // namespace parley
