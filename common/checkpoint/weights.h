#ifndef PARLEY_COMMON_CHECKPOINT_WEIGHTS_H_
#define PARLEY_COMMON_CHECKPOINT_WEIGHTS_H_

#include <cstddef>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/types.pb.h"

namespace parley {

// What a safetensors file of a PyTorch model says that it holds (weights_file.h reads it). A plain
// value: the coordinator's core and `parley plan` compare it with the model.
struct Weights {
  std::string path;
  std::vector<TensorSpec> tensors;
  // Further names of the file's tensors, as safetensors.torch.save_model writes them for tied
  // weights: the other name -> the tensor's in the file.
  std::map<std::string, std::string> tied;
  // Whether tensors that the model does not have are left out (checkpoint.ignore_unexpected).
  bool ignore_unexpected = false;
};

// Whether elements of the one type can be given as the other's without loss: the same type, and
// float16 and bfloat16 as float32 or float64, and float32 as float64.
bool CanWiden(DataType from, DataType to);

// Of each list in a message of CheckWeights that travels by gRPC, which takes 8 KiB at most.
inline constexpr size_t kMostListedBytes = 1500;
inline constexpr size_t kListAll = std::numeric_limits<size_t>::max();

// Whether the weights can be the start of a model, by the rules of PyTorch's load_state_dict
// (strict=True): every tensor of the model is there with its shape, and no other. INVALID_ARGUMENT
// names all that are missing, unexpected, or of another shape or type, in one line; of each of the
// three lists at most about `most_listed` bytes.
absl::Status CheckWeights(const Weights& weights, const std::vector<TensorSpec>& model,
                          size_t most_listed = kMostListedBytes);

}  // namespace parley

#endif  // PARLEY_COMMON_CHECKPOINT_WEIGHTS_H_
