#ifndef PARLEY_WORKER_TRAINING_BINDING_H_
#define PARLEY_WORKER_TRAINING_BINDING_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/session.h"

namespace parley {

// What ties the network that LocalCompute trains to its session: as ModuleBinding's methods of
// these names (client/torch/module_binding.h), whose contract they have. HostBinding where the
// network computes on the CPU, in the session's own memory; DeviceBinding where on a GPU. Owned by
// LocalCompute, called on the training thread.
class TrainingBinding {
 public:
  virtual ~TrainingBinding() = default;

  virtual absl::Status Attach(Session& session, uint64_t training_samples,
                              uint64_t test_samples) = 0;
  virtual absl::Status Backward(const at::Tensor& loss, bool last) = 0;
  virtual absl::StatusOr<Verdict> Complete(double loss_sum) = 0;
  virtual absl::Status Pull(bool ahead) = 0;
  virtual absl::StatusOr<std::optional<Session::PendingEvaluation>> PullEvaluation() = 0;

  // A batch, or a part of one, where the network computes.
  virtual at::Tensor ToNetwork(const at::Tensor& batch) = 0;
};

}  // namespace parley

#endif  // PARLEY_WORKER_TRAINING_BINDING_H_
