#include "worker/describe.h"

#include <nlohmann/json.hpp>

#include "common/tensor.h"

namespace parley {

absl::StatusOr<std::string> Describe(const Network& network, const Datasets& data) {
  const auto specs = SpecsOf(network.Tensors());
  if (!specs.ok()) return specs.status();
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
  for (const TensorSpec& spec : *specs) {
    nlohmann::ordered_json tensor;
    tensor["name"] = spec.name();
    tensor["dtype"] = DataTypeName(spec.dtype());
    tensor["shape"] = nlohmann::ordered_json::array();
    for (const int64_t size : spec.shape()) tensor["shape"].push_back(size);
    tensor["buffer"] = spec.buffer();
    tensors.push_back(std::move(tensor));
  }
  nlohmann::ordered_json description;
  description["tensors"] = std::move(tensors);
  description["training_samples"] = data.train->size();
  description["test_samples"] = data.test_samples();
  // A name that is no UTF-8 is the user's; it must not throw.
  return description.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace parley
