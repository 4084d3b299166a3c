#ifndef PARLEY_WORKER_TRAINING_BINDING_H_
#define PARLEY_WORKER_TRAINING_BINDING_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/session.h"

namespace parley {

// What ties a network to its session: as ModuleBinding's methods of these names
// (client/torch/module_binding.h), whose contract they have. HostBinding where the network computes
// on the CPU, in the session's own memory; DeviceBinding where on a GPU. Made by BindModule
// (bind_module.h), called on the training thread.
//
// On a GPU results are there later: losses and outputs may be read after Settle.
class TrainingBinding {
 public:
  virtual ~TrainingBinding() = default;

  virtual absl::Status Attach(Session& session, uint64_t training_samples,
                              uint64_t test_samples) = 0;
  virtual void MultiplyGradients(double factor) = 0;
  virtual absl::Status Backward(const at::Tensor& loss, bool last) = 0;
  // In place of forward and Backward of a step of one microbatch, as DeviceGraph::Run: `loss` is
  // called the first time, and must compute from the same memory as later ones. Gives the loss,
  // which the next run overwrites; an undefined tensor where it cannot be recorded, or the network
  // has other memory since, and why_not: nothing was done then.
  virtual absl::StatusOr<at::Tensor> RunGraph(absl::FunctionRef<at::Tensor()> /*loss*/,
                                              std::string& /*why_not*/) {
    return absl::UnimplementedError("graphs are of devices");
  }
  // Waits until the network has computed all that it was given, so that its results can be read.
  // DeadlineExceeded where the device does not answer.
  virtual absl::Status Settle() = 0;
  virtual absl::StatusOr<Verdict> Complete(double loss_sum) = 0;
  virtual absl::Status Pull(bool ahead) = 0;
  virtual absl::StatusOr<std::optional<Session::PendingEvaluation>> PullEvaluation() = 0;

  // A batch, or a part of one, in the host's memory. Of any shapes and types; y may be undefined.
  struct Samples {
    at::Tensor x;
    at::Tensor y;
    bool pinned = false;  // both lie, contiguous, in memory of ComputeDevice::AllocatePinned
  };
  // The same where the network computes, for as long as the binding is there. On a device it is a
  // copy, which an undefined y comes out of as an empty one; on the CPU it is what was given. Those
  // that are pinned must stay as they are until AwaitSamples.
  virtual absl::StatusOr<Samples> ToNetwork(const Samples& batch) = 0;
  // Waits until what ToNetwork was given is not read any more.
  virtual absl::Status AwaitSamples() { return absl::OkStatus(); }
  // After an error of forward or backward: whether the step had been lost, as Complete will say.
  // Then they have computed with anything.
  virtual bool StepIsLost() { return false; }
};

}  // namespace parley

#endif  // PARLEY_WORKER_TRAINING_BINDING_H_
