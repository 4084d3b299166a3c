#ifndef PARLEY_SERVER_PIPELINE_STAGE_DEVICE_STAGE_BINDING_H_
#define PARLEY_SERVER_PIPELINE_STAGE_DEVICE_STAGE_BINDING_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/pipeline_stage/stage_binding.h"
#include "worker/device/device.h"
#include "worker/device/peer_outbox.h"
#include "worker/device/pinned_copies.h"
#include "worker/device/pinned_pool.h"

namespace parley {

// On a device: the parts' tensors lie there, and a ModuleBinding ties their *shadows*, tensors of
// the same names on the CPU, to the session. Pulled values go from the shadows to the device.
// Gradients of the microbatches are added up on the device, in `.grad` of the parameters, and come
// to the host when they are pushed; buffers when the step is complete. All of it, and the
// activations that come, by PinnedCopies: a stage waits for each message that it gets or sends, so
// there is little to copy beside. What a stage sends lies in pinned memory, from which it is sent.
//
// It owns the shadows and the pinned memory. The device must outlive it and the parts' tensors,
// which stay there.
class DeviceStageBinding final : public StageBinding {
 public:
  // Moves the tensors to the device. patience: with the device, the job's stall_timeout.
  static absl::StatusOr<std::unique_ptr<StageBinding>> Make(std::vector<NamedTensor> tensors,
                                                            ComputeDevice& device,
                                                            absl::Duration patience);

  ModuleBinding& module() override { return *binding_; }
  absl::Status AttachPart(Session& session, const std::vector<TensorSpec>& model,
                          uint64_t training_samples, uint64_t test_samples) override;
  absl::Status GatherGradients(absl::FunctionRef<void()> backward) override;
  void AddGradient(const at::Tensor& parameter, const at::Tensor& gradient) override;
  absl::Status PushGathered(absl::Span<const size_t> tensors) override;
  void DropGradients() override;
  absl::StatusOr<Verdict> Complete(double loss_sum) override;
  absl::Status PullAhead() override;
  absl::Status PullVersion(uint64_t version) override;
  absl::Status Settle() override;
  absl::StatusOr<LayerFlow> FromHost(LayerFlow flow) override;
  absl::StatusOr<LayerFlow> ToHost(LayerFlow flow) override;
  std::string peer_handle() override;
  bool Reaches(const std::string& handle) override;
  absl::StatusOr<std::vector<PeerTensor>> ToPeer(LayerFlow flow) override;
  absl::StatusOr<LayerFlow> FromPeer(absl::Span<const PeerTensor> tensors) override;
  void BeginUnit() override { outbox_.BeginUnit(); }
  void BeginBatch(uint64_t batch, uint64_t first_read) override {
    outbox_.BeginTurn(batch, first_read);
  }
  absl::Status SettlePeers() override;
  void ForgetPeers() override;

 private:
  DeviceStageBinding(std::vector<NamedTensor> tensors, ComputeDevice& device,
                     absl::Duration patience);
  absl::Status Start();
  absl::Time Deadline() const;
  // From the shadows, all of them.
  absl::Status BringValues();
  absl::Status FetchBuffers();
  // Memory of another stage's device; opened once.
  absl::StatusOr<const std::byte*> Opened(const std::string& handle);

  const std::vector<NamedTensor> tensors_;  // on the device
  ComputeDevice& device_;
  const absl::Duration patience_;
  const at::Device where_;

  std::vector<NamedTensor> shadows_;  // in the order of tensors_
  std::unique_ptr<ModuleBinding> binding_;
  std::unique_ptr<PinnedCopies> copies_;
  PinnedPool sent_;    // what is on its way to other stages, by the host
  PeerOutbox outbox_;  // and what their devices copy
  std::map<std::string, DeviceBuffer> opened_;
  bool reads_peers_ = false;  // since the device was waited for last
  std::unique_ptr<DeviceEvent> computed_;
  Session* session_ = nullptr;  // set by AttachPart
  bool had_backward_ = false;   // in this step
};

}  // namespace parley

#endif  // PARLEY_SERVER_PIPELINE_STAGE_DEVICE_STAGE_BINDING_H_
