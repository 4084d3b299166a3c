#ifndef PARLEY_SERVER_PIPELINE_STAGE_STAGE_BINDING_H_
#define PARLEY_SERVER_PIPELINE_STAGE_STAGE_BINDING_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/session.h"
#include "client/torch/module_binding.h"
#include "server/pipeline_stage/peer_tensor.h"
#include "worker/models/layered_network.h"

namespace parley {

// What ties a stage's parts to its session and to where they compute: as ModuleBinding's methods of
// these names (client/torch/module_binding.h), whose contract they have. HostStageBinding where the
// parts compute on the CPU, in the session's own memory; DeviceStageBinding where on a GPU. Owned
// by StageCompute, called on the training thread.
class StageBinding {
 public:
  virtual ~StageBinding() = default;

  // Knows the tensors. On the CPU steps may overlap by it (WeightStash).
  virtual ModuleBinding& module() = 0;
  const std::vector<TensorSpec>& specs() { return module().specs(); }

  virtual absl::Status AttachPart(Session& session, const std::vector<TensorSpec>& model,
                                  uint64_t training_samples, uint64_t test_samples) = 0;
  virtual absl::Status GatherGradients(absl::FunctionRef<void()> backward) = 0;
  virtual void AddGradient(const at::Tensor& parameter, const at::Tensor& gradient) = 0;
  virtual absl::Status PushGathered(absl::Span<const size_t> tensors) = 0;
  virtual void DropGradients() = 0;
  virtual absl::StatusOr<Verdict> Complete(double loss_sum) = 0;
  virtual absl::Status PullAhead() = 0;
  virtual absl::Status PullVersion(uint64_t version) = 0;

  // Waits until the parts have computed all that they were given, so that results can be read.
  // DeadlineExceeded where the device does not answer.
  virtual absl::Status Settle() = 0;
  // Tensors of the host's memory, where the parts compute; and what these have computed, in the
  // host's memory, whole.
  virtual absl::StatusOr<LayerFlow> FromHost(LayerFlow flow) = 0;
  virtual absl::StatusOr<LayerFlow> ToHost(LayerFlow flow) = 0;

  // Between stages of one machine: what others try to find this one's device by, empty where there
  // is none; whether this one's device finds another's so; tensors as they lie on this one's,
  // whole, until BeginUnit or BeginBatch says otherwise; and those of another's, where the parts
  // compute. Internal: they cannot be reached, though the device could be.
  virtual std::string peer_handle() { return ""; }
  virtual bool Reaches(const std::string& /*handle*/) { return false; }
  virtual absl::StatusOr<std::vector<PeerTensor>> ToPeer(LayerFlow /*flow*/) {
    return absl::UnimplementedError("this stage has no device");
  }
  virtual absl::StatusOr<LayerFlow> FromPeer(absl::Span<const PeerTensor> /*tensors*/) {
    return absl::InvalidArgumentError(
        "another stage has sent tensors on a GPU, and this one has none");
  }
  // No other stage reads what this one has sent it; or in an evaluation, before anything is sent of
  // this batch, what it has sent before batch `first_read`. Batches that come in another order than
  // their own come as one (EvaluationTurn::group).
  virtual void BeginUnit() {}
  virtual void BeginBatch(uint64_t /*batch*/, uint64_t /*first_read*/) {}
  // Waits until nothing of another stage's device is read any more: before anybody is told that
  // this one has done its part.
  virtual absl::Status SettlePeers() { return absl::OkStatus(); }
  // The other stages are others from now on.
  virtual void ForgetPeers() {}
};

}  // namespace parley

#endif  // PARLEY_SERVER_PIPELINE_STAGE_STAGE_BINDING_H_
