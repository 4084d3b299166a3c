#include "client/parley/model_description.h"

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/tensor.h"

namespace parley {
namespace {

using Json = nlohmann::json;

absl::Status Bad(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("the worker's description of its model: ", what));
}

absl::StatusOr<uint64_t> Number(const Json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number_unsigned()) return Bad(absl::StrCat("no ", key));
  return it->get<uint64_t>();
}

absl::StatusOr<TensorSpec> Tensor(const Json& object) {
  if (!object.is_object()) return Bad("a tensor is no object");
  TensorSpec tensor;
  const auto name = object.find("name");
  if (name == object.end() || !name->is_string()) return Bad("a tensor without name");
  tensor.set_name(name->get<std::string>());
  const auto dtype = object.find("dtype");
  if (dtype != object.end() && dtype->is_string()) {
    tensor.set_dtype(ParseDataType(dtype->get<std::string>()));
  }
  if (tensor.dtype() == DATA_TYPE_UNSPECIFIED) {
    return Bad(absl::StrCat(tensor.name(), " has no dtype"));
  }
  const auto shape = object.find("shape");
  if (shape == object.end() || !shape->is_array()) {
    return Bad(absl::StrCat(tensor.name(), " has no shape"));
  }
  for (const Json& size : *shape) {
    if (!size.is_number_integer()) return Bad(absl::StrCat(tensor.name(), " has no shape"));
    tensor.add_shape(size.get<int64_t>());
  }
  const auto buffer = object.find("buffer");
  if (buffer != object.end() && !buffer->is_boolean()) {
    return Bad(absl::StrCat(tensor.name(), ": buffer is neither true nor false"));
  }
  tensor.set_buffer(buffer != object.end() && buffer->get<bool>());
  const auto stages = object.find("stages");
  if (stages == object.end()) return tensor;
  if (!stages->is_array()) return Bad(absl::StrCat(tensor.name(), ": stages is no list"));
  for (const Json& stage : *stages) {
    if (!stage.is_number_unsigned() ||
        stage.get<uint64_t>() > std::numeric_limits<uint32_t>::max()) {
      return Bad(absl::StrCat(tensor.name(), " has a stage that is no number"));
    }
    tensor.add_stages(stage.get<uint32_t>());
  }
  return tensor;
}

absl::StatusOr<std::vector<std::vector<std::string>>> Parts(const Json& object) {
  std::vector<std::vector<std::string>> parts;
  const auto found = object.find("parts");
  if (found == object.end()) return parts;
  if (!found->is_array()) return Bad("parts is no list");
  for (const Json& part : *found) {
    if (!part.is_array() || part.empty()) return Bad("a part without layers");
    std::vector<std::string>& layers = parts.emplace_back();
    for (const Json& layer : part) {
      if (!layer.is_string()) return Bad("a layer without name");
      layers.push_back(layer.get<std::string>());
    }
  }
  return parts;
}

absl::StatusOr<double> Seconds(const Json& object, const char* key) {
  const auto seconds = object.find(key);
  if (seconds == object.end() || !seconds->is_number() || !(seconds->get<double>() >= 0)) {
    return Bad(absl::StrCat("no ", key));
  }
  return seconds->get<double>();
}

absl::StatusOr<MeasuredLayer> Layer(const Json& object) {
  if (!object.is_object()) return Bad("the cost of a layer is no object");
  const auto forward = Seconds(object, "forward_seconds");
  if (!forward.ok()) return forward.status();
  const auto backward = Seconds(object, "backward_seconds");
  if (!backward.ok()) return backward.status();
  const auto output = Number(object, "output_bytes");
  if (!output.ok()) return output.status();
  const auto kept = Number(object, "kept_bytes");
  if (!kept.ok()) return kept.status();
  return MeasuredLayer{*forward, *backward, *output, *kept};
}

absl::StatusOr<std::optional<MeasuredHop>> Hop(const Json& object) {
  const auto found = object.find("hop");
  if (found == object.end()) return std::nullopt;
  if (!found->is_object()) return Bad("hop is no object");
  const auto bytes = Number(*found, "bytes");
  if (!bytes.ok()) return bytes.status();
  const auto seconds = Seconds(*found, "seconds");
  if (!seconds.ok()) return seconds.status();
  return MeasuredHop{*bytes, *seconds};
}

absl::StatusOr<std::vector<MeasuredLayer>> Costs(const Json& object,
                                                 const ModelDescription& model) {
  std::vector<MeasuredLayer> costs;
  const auto found = object.find("costs");
  if (found == object.end()) return costs;
  if (!found->is_array()) return Bad("costs is no list");
  for (const Json& entry : *found) {
    const auto layer = Layer(entry);
    if (!layer.ok()) return layer.status();
    costs.push_back(*layer);
  }
  size_t layers = 0;
  for (const auto& part : model.parts) layers += part.size();
  if (costs.size() != layers) return Bad("not a cost for each layer");
  return costs;
}

}  // namespace

absl::StatusOr<ModelDescription> ParseModelDescription(const std::string& json) {
  const Json object = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return Bad("no JSON object");
  ModelDescription model;
  const auto tensors = object.find("tensors");
  if (tensors == object.end() || !tensors->is_array()) return Bad("no tensors");
  for (const Json& entry : *tensors) {
    auto tensor = Tensor(entry);
    if (!tensor.ok()) return tensor.status();
    model.tensors.push_back(*std::move(tensor));
  }
  const auto training = Number(object, "training_samples");
  if (!training.ok()) return training.status();
  const auto test = Number(object, "test_samples");
  if (!test.ok()) return test.status();
  model.training_samples = *training;
  model.test_samples = *test;
  auto parts = Parts(object);
  if (!parts.ok()) return parts.status();
  model.parts = *std::move(parts);
  auto costs = Costs(object, model);
  if (!costs.ok()) return costs.status();
  model.costs = *std::move(costs);
  if (!model.costs.empty()) {
    const auto input = Number(object, "input_bytes");
    if (!input.ok()) return input.status();
    model.input_bytes = *input;
  }
  const auto hop = Hop(object);
  if (!hop.ok()) return hop.status();
  model.hop = *hop;
  return model;
}

}  // namespace parley
