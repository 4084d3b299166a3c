#ifndef PARLEY_WORKER_MODELS_LAYERED_NETWORK_H_
#define PARLEY_WORKER_MODELS_LAYERED_NETWORK_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/torch/named_tensors.h"
#include "proto/job.pb.h"
#include "worker/data/data_source.h"
#include "worker/models/layers.h"
#include "worker/models/network.h"

namespace parley {

// training: as Network::SetTraining. What LibTorch throws passes through.
using LayerForward = std::function<at::Tensor(const at::Tensor& x, bool training)>;

// One layer: what lies between two places where a network may be cut. It leaves its input as it is,
// since that is another process's output, or kept for a forward that is computed again.
struct NetworkLayer {
  std::string name;  // "layer1.0"
  LayerForward forward;
  // That it reads, parameters first. Two layers may share one: the same handle, the same name.
  std::vector<NamedTensor> tensors;
  // A skip connection: what a layer gives is kept for a later one, which joins it with its input.
  // What was kept last is joined first.
  bool keeps = false;
  std::function<at::Tensor(const at::Tensor& x, const at::Tensor& kept)> join;  // null: it has none
};

// What goes from one layer to the next: its input, then what earlier ones keep for later ones.
using LayerFlow = std::vector<at::Tensor>;

// Takes the flow through a layer. Throws what LibTorch throws.
void RunLayer(const NetworkLayer& layer, bool training, LayerFlow& flow);

struct LayerPlan {
  std::string name;
  // Throws what LibTorch throws. With a LayerSet without values: to count what the layer has.
  std::function<NetworkLayer(LayerSet& tensors)> make;
};

// The layers of the job's model, in order; nothing is allocated until one is made, with a LayerSet
// of the job's seed. InvalidArgument where the model cannot be cut (torchscript, own) or does not
// fit samples like `x`.
absl::StatusOr<std::vector<LayerPlan>> PlanLayers(const JobConfig& job, const SampleLayout& x);

// For who plans: a layer of what `make` returns, the function that is its forward, and the tensors
// that it has got from the set.
LayerPlan PlanLayer(std::string name, std::function<LayerForward(LayerSet& tensors)> make);

// A model, or a part of it between two cuts: layers one after the other.
class LayeredNetwork final : public Network {
 public:
  // first_layer: index of layers.front() in the whole model, so that what a layer draws does not
  // depend on where the model is cut.
  LayeredNetwork(std::vector<NetworkLayer> layers, size_t first_layer);

  // Of a whole model.
  at::Tensor Forward(const at::Tensor& x) override;
  // Of a part: from what the part before gives, or the data, to what the next part gets.
  LayerFlow Run(LayerFlow flow);
  void SetTraining(bool training) override { training_ = training; }
  // Each layer draws from a seed of its own, made of this and its index in the whole model.
  void Seed(uint64_t seed) override { seed_ = seed; }
  void SeedAtOnce(uint64_t seed) override {
    seed_.reset();
    Network::Seed(seed);
  }
  // Each name once; parameters of all layers first, then buffers.
  std::vector<NamedTensor> Tensors() const override;

 private:
  const std::vector<NetworkLayer> layers_;
  const size_t first_layer_;
  bool training_ = true;
  std::optional<uint64_t> seed_;  // none: draws go on from where LibTorch's generator is
};

}  // namespace parley

#endif  // PARLEY_WORKER_MODELS_LAYERED_NETWORK_H_
