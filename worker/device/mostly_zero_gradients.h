#ifndef PARLEY_WORKER_DEVICE_MOSTLY_ZERO_GRADIENTS_H_
#define PARLEY_WORKER_DEVICE_MOSTLY_ZERO_GRADIENTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/device/device.h"

namespace parley {

// Which of a worker's large gradients are mostly zeros, as an embedding's is but for the rows of
// the samples' words: of those only the rest need cross the bus (GradientPath::SendNonzero). It
// finds them where they are delivered as a whole, in the first steps and then now and then, and
// keeps for each which blocks of the host's memory hold anything.
//
// blocks and GiveUp are called by who sends a tensor, in each step before Look and Take, which are
// whoever delivers it; all else by the training thread, while nothing is under way. It outlives
// what was sent.
class MostlyZeroGradients {
 public:
  // bytes: of each tensor's gradient, of float32; 0: it is none of those. The device outlives it.
  static absl::StatusOr<std::unique_ptr<MostlyZeroGradients>> Make(
      ComputeDevice& device, const std::vector<size_t>& bytes);

  // Before a step's first one is sent.
  void BeginStep();
  // Other memory is at the host's addresses of the tensor, or somebody else has written there: it
  // is sent as a whole until it has been looked at.
  void Forget(size_t tensor);

  // For SendNonzero; empty where the tensor is to go as a whole.
  absl::Span<uint8_t> blocks(size_t tensor);
  // The device cannot send it so: never again.
  void GiveUp(size_t tensor) { tensors_[tensor].gone_whole = true; }

  // These bytes of it, from `begin` on, were delivered: pieces of whole float32, in order.
  void Look(size_t tensor, size_t begin, absl::Span<const std::byte> values);
  // It was delivered by SendNonzero: what Session::PushNonzero is to be told.
  std::string Take(size_t tensor);

 private:
  struct Tensor {
    size_t bytes = 0;
    size_t first = 0;        // of blocks_
    size_t blocks = 0;       // 0: it is none of those
    bool is_sparse = false;  // the blocks say which hold anything
    bool gone_whole = false;
  };

  explicit MostlyZeroGradients(ComputeDevice& device) : device_(device) {}

  ComputeDevice& device_;
  std::vector<Tensor> tensors_;
  DeviceBuffer blocks_;  // pinned; a byte for each block of each tensor
  uint64_t steps_ = 0;
  bool looks_ = false;  // in this step
};

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_MOSTLY_ZERO_GRADIENTS_H_
