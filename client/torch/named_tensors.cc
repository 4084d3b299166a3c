#include "client/torch/named_tensors.h"

#include <c10/core/GradMode.h>

#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/torch/dtype.h"
#include "common/tensor.h"

namespace parley {

absl::StatusOr<std::vector<TensorSpec>> SpecsOf(const std::vector<NamedTensor>& tensors) {
  std::vector<TensorSpec> specs;
  bool trains = false;
  for (const NamedTensor& named : tensors) {
    const at::Tensor& tensor = named.tensor;
    if (tensor.layout() != c10::kStrided || !tensor.device().is_cpu()) {
      return absl::InvalidArgumentError(absl::StrCat(named.name, " is ", tensor.toString(),
                                                     "; only dense CPU tensors can be used"));
    }
    TensorSpec spec;
    spec.set_name(named.name);
    spec.set_dtype(ToDataType(tensor.scalar_type()));
    if (spec.dtype() == DATA_TYPE_UNSPECIFIED) {
      return absl::InvalidArgumentError(absl::StrCat(
          named.name, " has elements of type ", c10::toString(tensor.scalar_type()),
          "; float32, float64, float16, bfloat16, int64, int32, uint8 and bool can be used"));
    }
    for (const int64_t size : tensor.sizes()) spec.add_shape(size);
    spec.set_buffer(named.buffer || !IsFloat(spec.dtype()));
    trains = trains || (!spec.buffer() && tensor.requires_grad());
    specs.push_back(std::move(spec));
  }
  if (!trains) {
    return absl::InvalidArgumentError("the module has no parameter that requires a gradient");
  }
  return specs;
}

std::vector<NamedTensor> ShadowsOf(const std::vector<NamedTensor>& tensors) {
  const c10::NoGradGuard no_grad;
  std::vector<NamedTensor> shadows;
  for (const NamedTensor& named : tensors) {
    at::Tensor shadow = named.tensor.detach().to(at::kCPU).clone(at::MemoryFormat::Contiguous);
    shadow.set_requires_grad(named.tensor.requires_grad());
    shadows.push_back({named.name, std::move(shadow), named.buffer});
  }
  return shadows;
}

std::vector<NamedTensor> WithoutRepetitions(std::vector<NamedTensor> tensors) {
  std::unordered_set<const void*> seen;
  std::vector<NamedTensor> unique;
  for (NamedTensor& named : tensors) {
    if (!named.tensor.defined() || named.tensor.numel() == 0) continue;
    if (!seen.insert(named.tensor.unsafeGetTensorImpl()).second) continue;
    unique.push_back(std::move(named));
  }
  return unique;
}

}  // namespace parley
