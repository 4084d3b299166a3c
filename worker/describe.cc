#include "worker/describe.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/tensor.h"

namespace parley {
namespace {

using Json = nlohmann::ordered_json;

Json DescribeTensors(const std::vector<TensorSpec>& specs, const Datasets& data) {
  Json tensors = Json::array();
  for (const TensorSpec& spec : specs) {
    Json tensor;
    tensor["name"] = spec.name();
    tensor["dtype"] = DataTypeName(spec.dtype());
    tensor["shape"] = Json::array();
    for (const int64_t size : spec.shape()) tensor["shape"].push_back(size);
    tensor["buffer"] = spec.buffer();
    for (const uint32_t stage : spec.stages()) tensor["stages"].push_back(stage);
    tensors.push_back(std::move(tensor));
  }
  Json description;
  description["tensors"] = std::move(tensors);
  description["training_samples"] = data.train->size();
  description["test_samples"] = data.test_samples();
  return description;
}

// A name that is no UTF-8 is the user's; it must not throw.
std::string Line(const Json& description) {
  return description.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

absl::StatusOr<std::string> Describe(const Network& network, const Datasets& data) {
  const auto specs = SpecsOf(network.Tensors());
  if (!specs.ok()) return specs.status();
  return Line(DescribeTensors(*specs, data));
}

uint64_t LargestHop(const PipelineModel& model, const std::vector<LayerCost>& layers) {
  uint64_t bytes = 0;
  for (size_t part = 0; part + 1 < model.parts(); ++part) {
    bytes = std::max(bytes, layers[model.end_of(part) - 1].output_bytes);
  }
  return bytes;
}

std::string Describe(const PipelineModel& model, const PipelineProfile& profile,
                     const Datasets& data) {
  Json description = DescribeTensors(model.tensors, data);
  for (size_t part = 0; part < model.parts(); ++part) {
    Json layers = Json::array();
    for (size_t i = model.first_layers[part]; i < model.end_of(part); ++i) {
      layers.push_back(model.layers[i].name);
    }
    description["parts"].push_back(std::move(layers));
  }
  if (!profile.layers.empty()) description["input_bytes"] = profile.input_bytes;
  for (const LayerCost& cost : profile.layers) {
    Json layer;
    layer["forward_seconds"] = absl::ToDoubleSeconds(cost.forward);
    layer["backward_seconds"] = absl::ToDoubleSeconds(cost.backward);
    layer["output_bytes"] = cost.output_bytes;
    layer["kept_bytes"] = cost.kept_bytes;
    description["costs"].push_back(std::move(layer));
  }
  if (profile.hop.has_value()) {
    description["hop"]["bytes"] = profile.hop_bytes;
    description["hop"]["seconds"] = absl::ToDoubleSeconds(*profile.hop);
  }
  return Line(description);
}

}  // namespace parley
