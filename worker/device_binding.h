#ifndef PARLEY_WORKER_DEVICE_BINDING_H_
#define PARLEY_WORKER_DEVICE_BINDING_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/torch/module_binding.h"
#include "common/pull_turn.h"
#include "worker/device/bucket_plan.h"
#include "worker/device/device.h"
#include "worker/device/gradient_delivery.h"
#include "worker/device/gradient_path.h"
#include "worker/device/group_gradient_path.h"
#include "worker/device/group_stream.h"
#include "worker/device/mostly_zero_gradients.h"
#include "worker/device/sample_path.h"
#include "worker/device_buffers.h"
#include "worker/device_values.h"
#include "worker/gpu_group.h"
#include "worker/training_binding.h"

namespace parley {

// On a device: the network's tensors lie there, and a ModuleBinding ties their *shadows*, tensors
// of the same names on the CPU, to the session. Pulled values go from the session to the device
// (DeviceValues), buffers both ways (DeviceBuffers). A bucket of gradients goes to the host as soon
// as backward has the last one of it (GradientPath), large gradients into the session's own memory,
// and is pushed when it is there, by a thread of its own (GradientDelivery). The training thread
// waits for the device at the end of a step (Settle), and for room. Samples come while the device
// computes with those before (SamplePath).
//
// In a node group with GPUs that reduce (GpuGroup) a bucket goes to the other ranks' devices first,
// and what comes to the host are the sums that this rank owns; values that follow a step of all
// ranks come from the host to the device of the rank that owns them, and from there to the others'.
// Such a step ends for all ranks or for none: what becomes of one that lacks a rank the session
// says, at its Complete.
//
// It owns the shadows and the pinned memory. The network and the device must outlive it; the
// network stays on the device. The training thread's; LibTorch's threads of backward call the
// hooks.
class DeviceBinding final : public TrainingBinding {
 public:
  struct Options {
    // Of gradients: what a bucket has last holds up all of it, at the step's end the step. Among
    // GPUs each costs more. float32: 1 MiB, 4 MiB.
    uint64_t bucket_elements = 1 << 18;
    uint64_t group_bucket_elements = 1 << 20;
    uint64_t small_values = 1 << 16;   // DeviceValues::Options::bucket_elements
    uint64_t staged_values = 1 << 20;  // its staged_elements
    uint64_t tiny_values = kMostTinyBytes / sizeof(float);  // its tiny
    // Gradients of so many go from where they are to where the session has them, values of so many
    // from where a shard shows them. (To give such a copy to the streams takes the host as long as
    // to pack and copy many small ones.)
    uint64_t direct_gradient = 1 << 18;
    uint64_t direct_values = 1 << 16;
    // Of such a gradient so many go at a time, so that a shard has the first ones while the last
    // ones are on their way (sync.update_ahead). float32: 8 MiB.
    uint64_t direct_piece = 1 << 21;
    // Of such a gradient that is mostly zeros only the rest is brought to the host. Not where
    // others write to the session's gradients: in node groups that add up there.
    bool leaves_out_zeros = true;
    absl::Duration patience = absl::Minutes(10);  // with the device: the job's stall_timeout
    // In a node group: adds up its gradients among the GPUs; nullptr: on the host.
    GpuGroup* group = nullptr;
  };
  // Moves the network to the device; `network` lists its tensors. InvalidArgument where it has
  // parameters that are not float32.
  static absl::StatusOr<std::unique_ptr<TrainingBinding>> Make(ModuleBinding::Lister network,
                                                               ComputeDevice& device,
                                                               const Options& options);
  ~DeviceBinding() override;

  absl::Status Attach(Session& session, uint64_t training_samples, uint64_t test_samples) override;
  void MultiplyGradients(double factor) override { factor_ = static_cast<float>(factor); }
  absl::Status Backward(const at::Tensor& loss, bool last) override;
  absl::StatusOr<at::Tensor> RunGraph(absl::FunctionRef<at::Tensor()> loss,
                                      std::string& why_not) override;
  absl::Status Settle() override;
  absl::StatusOr<Verdict> Complete(double loss_sum) override;
  absl::Status Pull(bool ahead) override;
  absl::StatusOr<std::optional<Session::PendingEvaluation>> PullEvaluation() override;
  absl::StatusOr<Samples> ToNetwork(const Samples& batch) override;
  absl::Status AwaitSamples() override;
  bool StepIsLost() override;

 private:
  class GradientHook;

  DeviceBinding(ModuleBinding::Lister network, ComputeDevice& device, const Options& options);
  absl::Status Start();
  // Of a step's forward: it has computed with what the session has brought.
  absl::Status CheckForward() const;
  absl::Status MoveToDevice();
  bool IsParameter(size_t tensor) const;
  // Its gradient is asked for, as things are now: who trains may freeze it, and change their mind.
  bool IsTrained(size_t tensor) const;
  absl::Time Deadline() const;

  void BeginBackward(bool last);
  // What a step has for all gradients: before its first one.
  absl::Status BeginSending();
  // Those that no hook has sent, or not whole; at the end of backward.
  absl::Status SendWhatIsLeft();
  void GradientArrived(size_t tensor);  // a thread of backward
  // What the bucket has; once a step.
  absl::Status Send(size_t bucket);
  // Of a large gradient, in this step.
  bool LeavesOutZeros(size_t tensor) const;
  // A large gradient, to where the session has it.
  absl::Status SendDirect(size_t tensor, at::Tensor gradient);
  // In a node group: forms it anew where the session has. Before anything is sent.
  absl::Status FollowGroup();
  // Sends the buckets that backward has not given whole. Waits for no other rank.
  absl::Status SendRest();
  std::pair<uint64_t, uint64_t> Composition() const;  // of the session; formed_ where it is ours
  // For DeviceValues::Sharing.
  absl::Status BroadcastValues(std::byte* values, absl::Span<const DeviceGroup::Part> parts);
  // Until at most so many broadcasts are under way: the others may wait for other ranks, and here
  // the session hears what becomes of those. OK where the step is lost, too.
  absl::Status AwaitBroadcasts(size_t most);
  absl::Status AwaitGroup(const std::function<bool()>& done);
  // A tensor of the network that lies elsewhere than graph_tensors_ says; empty: none.
  std::string MovedTensor() const;
  // What was only recorded has computed nothing.
  absl::Status PutBackTensors();
  // Those of a step that is given up.
  void DropDeviceGradients();
  // The step is: its group is left. Errors: this rank's own GPU's.
  absl::Status Lose(absl::Status why);
  // What the stream of the group has said: an error of this rank's own GPU, or OK, and another rank
  // is lost.
  absl::Status LoseUnlessOwn(const absl::Status& why);
  // Waits for all sums, and takes them. OK where the step is lost, too: then lost_ says why.
  absl::Status TakeAllSums();
  absl::Status TakeSums(size_t bucket, absl::Span<const float> sums, absl::Span<const float> flags);
  // Takes what has come to the host into the session's memory; pushes what is whole then. On the
  // delivery's thread. Beyond the buckets: tensors that were sent directly, piece by piece.
  absl::Status Push(size_t bucket, absl::Span<const std::byte> values);
  // Pins the session's gradients, where they are not pinned as they are now.
  void PinGradients();
  // Values and buffers, all of them.
  absl::Status BringPulled();

  const ModuleBinding::Lister network_;  // its tensors, as they are
  ComputeDevice& device_;
  const Options options_;
  at::Device where_;

  std::vector<NamedTensor> shadows_;  // as the network lists its tensors
  std::vector<at::Tensor> tensors_;   // the network's, on the device; of buffers: undefined
  BucketPlan plan_;                   // of the parameters
  std::unique_ptr<ModuleBinding> binding_;
  DeviceBuffer pinned_gradients_;  // the session's, if it could be pinned
  uint64_t pinned_memory_ = 0;     // Session::gradient_memory of it
  std::unique_ptr<MostlyZeroGradients>
      zeros_;  // of those that go directly; null: none are left out
  std::unique_ptr<GradientPath> out_;
  std::unique_ptr<GradientDelivery> delivery_;  // of out_
  std::unique_ptr<DeviceValues> values_;
  std::unique_ptr<DeviceBuffers> buffers_;
  std::unique_ptr<SamplePath> samples_;  // from the first batch on
  std::unique_ptr<DeviceEvent> computed_;
  DeviceBuffer bad_;  // a word for Unscale
  // In place of out_, with options_.group: what the devices do together, and gradients.
  std::unique_ptr<GroupStream> together_;
  std::unique_ptr<GroupGradientPath> among_;
  // Broadcasts: their ends, in turn, and the works that are under way.
  std::array<std::unique_ptr<DeviceEvent>, DeviceValues::kMostShared + 1> broadcast_;
  size_t next_broadcast_ = 0;
  std::deque<uint64_t> under_way_;
  Session* session_ = nullptr;  // set by Attach
  bool to_add_up_ = false;      // the sums of this step have to come yet
  bool had_backward_ = false;
  bool pulled_ = false;                 // since the last Complete
  std::vector<const void*> on_device_;  // where the parameters were put, by the session's index
  float factor_ = 1;                    // of gradients

  // Of the step. What a bucket has sent is looked at when it is delivered.
  std::vector<std::vector<BucketPlan::Part>> sent_;  // of each bucket; written once, before it goes
  bool rounds_ = false;                              // to bfloat16, as the session would
  std::vector<size_t> undelivered_;       // buckets of each tensor; the delivery's thread
  std::vector<bool> is_direct_;           // each tensor: it goes alone, from where it is
  std::vector<at::Tensor> on_their_way_;  // gradients of those, until they are delivered

  // Recorded; gradients and loss lie where each run writes them.
  std::unique_ptr<DeviceGraph> graph_;
  std::vector<at::Tensor> graph_gradients_;
  at::Tensor graph_loss_;
  std::vector<at::Tensor> graph_tensors_;  // the network's, as it was recorded with them

  // In a node group.
  std::optional<std::pair<uint64_t, uint64_t>> formed_;  // job_epoch and composition of among_
  std::vector<std::vector<BucketPlan::Part>> own_;       // of each bucket, as its sums come
  std::vector<size_t> to_come_;                          // buckets of each tensor, in the step
  std::vector<bool> any_;                                // some rank has a gradient of the tensor
  absl::Status lost_;                                    // why the step is

  absl::Mutex mu_;
  bool last_ ABSL_GUARDED_BY(mu_) = false;                  // the backward is the step's last
  bool records_ ABSL_GUARDED_BY(mu_) = false;               // it is recorded: nothing is sent
  std::vector<at::Tensor> gradients_ ABSL_GUARDED_BY(mu_);  // of which parts are not sent
  std::vector<size_t> unsent_ ABSL_GUARDED_BY(mu_);         // buckets of each tensor
  std::vector<size_t> missing_ ABSL_GUARDED_BY(mu_);        // gradients, of each bucket
  std::vector<bool> is_sent_ ABSL_GUARDED_BY(mu_);          // each bucket
  absl::Status error_ ABSL_GUARDED_BY(mu_);                 // the first in a hook
};

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_BINDING_H_
