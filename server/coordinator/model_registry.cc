#include "server/coordinator/model_registry.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/tensor.h"
#include "server/coordinator/first_cause.h"
#include "server/coordinator/placement.h"

namespace parley {
namespace {

std::string InWords(const TensorSpec& tensor) {
  const std::string_view dtype = DataTypeName(tensor.dtype());
  return absl::StrCat("'", tensor.name(), "' ", absl::string_view(dtype.data(), dtype.size()), " [",
                      absl::StrJoin(tensor.shape(), ", "), "]", tensor.buffer() ? " (buffer)" : "");
}

// The shards would refuse a view of others, when all have registered and nobody can say any more
// who asked for them.
absl::Status CheckTrainable(const std::vector<TensorSpec>& tensors) {
  for (const TensorSpec& tensor : tensors) {
    if (tensor.buffer() || IsTrainable(tensor.dtype())) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", InWords(tensor),
                     " cannot be trained: trained tensors are F32 or F64; convert it, or register "
                     "it as a buffer if no optimizer is to change it"));
  }
  return absl::OkStatus();
}

// That the pipelines have every tensor, on stages that there are.
absl::Status CheckStages(const std::vector<TensorSpec>& tensors, uint32_t stages) {
  for (const TensorSpec& tensor : tensors) {
    const std::string who = absl::StrCat("tensor '", tensor.name(), "' ");
    if (tensor.stages().empty() && stages != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(who, "is on no stage, of ", stages, " in each pipeline"));
    }
    for (int i = 0; i < tensor.stages_size(); ++i) {
      if (tensor.stages(i) >= stages) {
        return absl::InvalidArgumentError(
            absl::StrCat(who, "is on stage ", tensor.stages(i), ", each pipeline has ", stages));
      }
      if (i != 0 && tensor.stages(i) <= tensor.stages(i - 1)) {
        return absl::InvalidArgumentError(absl::StrCat(who, "has stages [",
                                                       absl::StrJoin(tensor.stages(), ", "),
                                                       "], which are not in ascending order"));
      }
    }
  }
  return absl::OkStatus();
}

// Of lists of the same tensors.
std::optional<std::string> DifferenceInStages(const std::vector<TensorSpec>& here,
                                              const std::vector<TensorSpec>& there) {
  for (size_t i = 0; i < here.size(); ++i) {
    const std::string a = absl::StrJoin(here[i].stages(), ", ");
    const std::string b = absl::StrJoin(there[i].stages(), ", ");
    if (a == b) continue;
    return absl::StrCat("tensor ", i, ", '", here[i].name(), "', is on stages [", a, "] here and [",
                        b, "] there");
  }
  return std::nullopt;
}

std::vector<TensorSpec> TensorsOf(const RegisterModelRequest& request) {
  return {request.tensors().begin(), request.tensors().end()};
}

}  // namespace

std::optional<std::string> Difference(const std::vector<TensorSpec>& here,
                                      const std::vector<TensorSpec>& there) {
  for (size_t i = 0; i < here.size() && i < there.size(); ++i) {
    const std::string a = InWords(here[i]);
    const std::string b = InWords(there[i]);
    if (a != b) return absl::StrCat("tensor ", i, " is ", a, " here and ", b, " there");
  }
  if (here.size() == there.size()) return std::nullopt;
  return absl::StrCat(here.size(), " tensors here and ", there.size(), " there");
}

absl::Status ModelRegistry::Register(const Member& who, const RegisterModelRequest& request) {
  const std::vector<TensorSpec> registering = TensorsOf(request);
  if (absl::Status status = CheckTensors(registering); !status.ok()) return status;
  if (absl::Status status = CheckTrainable(registering); !status.ok()) return status;
  if (absl::Status status = CheckStages(registering, stages_); !status.ok()) return status;
  if (request.training_samples() == 0) {
    return absl::InvalidArgumentError("the training set has no samples");
  }
  if (!by_.empty()) {
    const std::string against =
        absl::StrCat(Describe(who), " does not train what ", Describe(first_), " trains: ");
    auto difference = Difference(registering, tensors());
    if (!difference) difference = DifferenceInStages(registering, tensors());
    if (difference) return absl::InvalidArgumentError(absl::StrCat(against, *difference));
    if (request.training_samples() != model_.training_samples() ||
        request.test_samples() != model_.test_samples()) {
      return absl::InvalidArgumentError(
          absl::StrCat(against, request.training_samples(), " training and ",
                       request.test_samples(), " test samples here and ", model_.training_samples(),
                       " and ", model_.test_samples(), " there"));
    }
  } else {
    model_ = request;
    model_.clear_header();
    first_ = who;
  }
  by_.insert(who.id());
  return absl::OkStatus();
}

void ModelRegistry::Forget(uint64_t member) { by_.erase(member); }

void ModelRegistry::Write(CoordinatorState& state) const {
  if (model_.tensors_size() != 0) *state.mutable_model() = model_;
  state.set_model_from(first_.id());
  state.mutable_registered()->Assign(by_.begin(), by_.end());
}

void ModelRegistry::Read(const CoordinatorState& state, const Member& first) {
  model_ = state.model();
  first_ = first;
  by_ = {state.registered().begin(), state.registered().end()};
}

std::vector<TensorSpec> ModelRegistry::tensors() const { return TensorsOf(model_); }

}  // namespace parley
