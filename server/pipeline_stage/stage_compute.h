#ifndef PARLEY_SERVER_PIPELINE_STAGE_STAGE_COMPUTE_H_
#define PARLEY_SERVER_PIPELINE_STAGE_STAGE_COMPUTE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/session.h"
#include "proto/coordinator.pb.h"
#include "proto/job.pb.h"
#include "server/pipeline_stage/stage_binding.h"
#include "worker/device/device.h"
#include "worker/models/deferred_weights.h"
#include "worker/models/layered_network.h"
#include "worker/models/pipeline_model.h"

namespace parley {

uint64_t BytesOf(const LayerFlow& flow);

// The parts of a model that one stage has, and what it keeps of the microbatches that are under way
// in them: no messages, no schedule. On the CPU, or on a device; there what goes in and comes out
// lies on the device, too. Errors: InvalidArgument for what LibTorch throws, ResourceExhausted
// where a device has no memory for it, and what the device says. Used by the training thread.
class StageCompute {
 public:
  // Makes the layers of the stage's parts, and no others. device: where they compute; null: on the
  // CPU. All of these must outlive it.
  static absl::StatusOr<std::unique_ptr<StageCompute>> Make(const JobConfig& job,
                                                            const PipelineModel& model,
                                                            uint32_t stage,
                                                            ComputeDevice* device = nullptr);

  // Of all its parts. The session must outlive this.
  absl::Status Attach(Session& session, uint64_t training_samples, uint64_t test_samples);
  StageBinding& binding() { return *binding_; }

  const std::vector<uint32_t>& parts() const { return parts_; }
  bool is_last(uint32_t part) const { return part + 1 == model_.parts(); }

  // What has come from another process, where the parts compute; and what goes to one, in the
  // host's memory. That is where a device is waited for, and counts as its time.
  absl::StatusOr<LayerFlow> FromHost(LayerFlow flow);
  absl::StatusOr<LayerFlow> ToHost(LayerFlow flow);
  // Likewise, from another stage's device to this one's, and on this one's for another.
  absl::StatusOr<LayerFlow> FromPeer(absl::Span<const PeerTensor> tensors);
  absl::StatusOr<std::vector<PeerTensor>> ToPeer(LayerFlow flow);

  // A step begins: nothing is kept of an earlier one.
  void Begin();

  // What the last part takes the loss against: it is the mean over the samples of the microbatch,
  // times their share of all of the step.
  struct Target {
    at::Tensor y;
    uint64_t samples = 0;
    uint64_t of = 0;
  };
  // seed: of what is drawn in this microbatch (MicrobatchSeed). target: of the last part.
  absl::Status Forward(uint32_t part, uint32_t microbatch, const LayerFlow& inputs, uint64_t seed,
                       const Target* target);
  // After Forward, once: what the next part gets; not of the last one. Who computes forwards again
  // does not keep it.
  LayerFlow TakeOutputs(uint32_t part, uint32_t microbatch);
  // The sum of the samples' losses, of the last part.
  double loss_sum(uint32_t part, uint32_t microbatch) const;

  // gradients: of the outputs; none for the last part. What it gives of parameters is gathered in
  // the binding. Backward is InputGradient, then WeightGradient.
  absl::Status Backward(uint32_t part, uint32_t microbatch, const LayerFlow& gradients);
  absl::Status InputGradient(uint32_t part, uint32_t microbatch, const LayerFlow& gradients);
  absl::Status WeightGradient(uint32_t part, uint32_t microbatch);
  // After Backward or InputGradient: of each input; none of part 0, nor where what the part
  // computes does not depend on them. The microbatch is forgotten in this part when its weight
  // gradient is there, too, and these were taken.
  LayerFlow TakeInputGradients(uint32_t part, uint32_t microbatch);

  // Sends what the part's weights have gathered: no backward in this part follows in the step.
  absl::Status Update(uint32_t part);
  // At the end of a step: sends what another part of this stage, in which no microbatch has been,
  // might have had something to add to.
  absl::Status UpdateRest();

  // One batch in evaluation; of the last part with y, and added to `evaluation`.
  absl::StatusOr<LayerFlow> Evaluate(uint32_t part, const LayerFlow& inputs, const at::Tensor& y,
                                     Evaluation& evaluation);

  // Of activations that are kept now: inputs and outputs of parts, as far as they are known here.
  uint64_t kept_bytes() const;
  size_t kept() const { return live_.size(); }
  // Since the last call.
  absl::Duration TakeBusy() { return std::exchange(busy_, absl::ZeroDuration()); }

 private:
  struct Live {
    std::unique_ptr<DeferredWeights>
        deferred;  // where backwards come in halves; outlives the graph
    LayerFlow inputs, outputs, input_gradients;  // the last part's output is the loss
    uint64_t seed = 0;
    Target target;
    at::Tensor loss;  // the mean over the microbatch's samples
    double loss_sum = 0;
    bool weights_done = false;
  };
  using Key = std::pair<uint32_t, uint32_t>;  // part, microbatch

  StageCompute(const JobConfig& job, const PipelineModel& model, ComputeDevice* device)
      : job_(job), model_(model), device_(device) {}

  absl::Status MakeParts(uint32_t stage);
  // Of all parts, parameters first, each once.
  std::vector<NamedTensor> Tensors() const;
  LayeredNetwork& network(uint32_t part) { return *networks_.at(part); }
  absl::StatusOr<Live*> Find(uint32_t part, uint32_t microbatch);
  // Runs the part on live.inputs; its outputs, or the loss.
  LayerFlow Run(uint32_t part, Live& live);
  // The same once more, for who keeps inputs only; buffers stay as they are.
  void RunAgain(uint32_t part, Live& live);
  // As StageBinding's; counts as computing.
  absl::Status Settle();
  absl::Status ReadLoss(const std::string& what, Live& live);
  // Backward to input and parameters. Without deferred weights it is all of it.
  void RunBackward(uint32_t part, Live& live, const LayerFlow& gradients);
  void AddDeferred(Live& live);
  absl::Status Gather(absl::FunctionRef<void()> backward);
  // Runs what computes, as CatchTorch, and counts its time.
  absl::Status Timed(const std::string& what, absl::FunctionRef<void()> compute);

  const JobConfig& job_;
  const PipelineModel& model_;
  ComputeDevice* const device_;
  std::vector<uint32_t> parts_;
  std::map<uint32_t, std::unique_ptr<LayeredNetwork>> networks_;  // by part
  std::map<uint32_t, std::vector<size_t>> trained_;  // by part: parameters, by index in the binding
  std::unique_ptr<StageBinding> binding_;
  std::map<Key, Live> live_;
  std::set<uint32_t> updated_;  // parts, in this step
  absl::Duration busy_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_PIPELINE_STAGE_STAGE_COMPUTE_H_
