#include "server/pipeline_stage/device_stage_binding.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/torch/dtype.h"
#include "client/torch/named_tensors.h"
#include "client/torch/torch_status.h"
#include "common/clock/steady_now.h"
#include "common/host_name.h"

namespace parley {
namespace {

constexpr absl::string_view kAfterBootId = " ";

const std::byte* From(const at::Tensor& tensor) {
  return static_cast<const std::byte*>(tensor.const_data_ptr());
}
std::byte* To(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr());
}

PinnedCopies::In In(const at::Tensor& on_host, const at::Tensor& on_device) {
  return {From(on_host), To(on_device), on_host.nbytes()};
}
PinnedCopies::Out Out(const at::Tensor& on_device, const at::Tensor& on_host) {
  return {From(on_device), To(on_host), on_device.nbytes()};
}

at::Tensor EmptyLike(const at::Tensor& tensor, at::Device device) {
  return at::empty(tensor.sizes(), tensor.options().device(device));
}

}  // namespace

absl::StatusOr<std::unique_ptr<StageBinding>> DeviceStageBinding::Make(
    std::vector<NamedTensor> tensors, ComputeDevice& device, absl::Duration patience) {
  auto binding = absl::WrapUnique(new DeviceStageBinding(std::move(tensors), device, patience));
  if (absl::Status status = binding->Start(); !status.ok()) return status;
  return binding;
}

DeviceStageBinding::DeviceStageBinding(std::vector<NamedTensor> tensors, ComputeDevice& device,
                                       absl::Duration patience)
    : tensors_(std::move(tensors)),
      device_(device),
      patience_(patience),
      where_(device.torch_device()),
      sent_(device, "activations and their gradients"),
      outbox_(device, "activations and their gradients") {}

absl::Time DeviceStageBinding::Deadline() const { return SteadyNow() + patience_; }

absl::Status DeviceStageBinding::Start() {
  absl::Status status =
      CatchTorch("copying the stage's tensors", [&] { shadows_ = ShadowsOf(tensors_); });
  if (!status.ok()) return status;
  auto binding = ModuleBinding::Create(ModuleBinding::Lister([this] { return shadows_; }));
  if (!binding.ok()) return binding.status();
  binding_ = *std::move(binding);
  auto copies = PinnedCopies::Make(device_, {});
  if (!copies.ok()) return copies.status();
  copies_ = *std::move(copies);
  auto computed = device_.MakeEvent();
  if (!computed.ok()) return computed.status();
  computed_ = *std::move(computed);
  return CatchTorch(absl::StrCat("moving the stage to ", device_.name()), [&] {
    const c10::NoGradGuard no_grad;
    for (const NamedTensor& named : tensors_) {
      at::Tensor tensor = named.tensor;  // the parts' own handle
      tensor.set_data(tensor.to(where_).contiguous());
    }
  });
}

absl::Status DeviceStageBinding::AttachPart(Session& session, const std::vector<TensorSpec>& model,
                                            uint64_t training_samples, uint64_t test_samples) {
  session_ = &session;
  absl::Status status = binding_->AttachPart(session, model, training_samples, test_samples);
  return status.ok() ? BringValues() : status;
}

absl::Status DeviceStageBinding::BringValues() {
  std::vector<PinnedCopies::In> copies;
  absl::Status status = CatchTorch("reading the stage's values", [&] {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      copies.push_back(In(shadows_[i].tensor, tensors_[i].tensor));
    }
  });
  return status.ok() ? copies_->ToDevice(copies, Deadline()) : status;
}

absl::Status DeviceStageBinding::FetchBuffers() {
  std::vector<PinnedCopies::Out> copies;
  absl::Status status = CatchTorch("reading the buffers", [&] {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (!specs()[i].buffer()) continue;
      copies.push_back(Out(tensors_[i].tensor, shadows_[i].tensor));
    }
  });
  return status.ok() ? copies_->ToHost(copies, Deadline()) : status;
}

absl::Status DeviceStageBinding::GatherGradients(absl::FunctionRef<void()> backward) {
  had_backward_ = true;
  return binding_->GatherGradients(backward);
}

void DeviceStageBinding::AddGradient(const at::Tensor& parameter, const at::Tensor& gradient) {
  if (!gradient.defined()) return;
  const at::Tensor& sum = parameter.grad();
  if (sum.defined()) {
    sum.add_(gradient);
  } else {
    parameter.mutable_grad() = gradient;
  }
}

absl::Status DeviceStageBinding::PushGathered(absl::Span<const size_t> tensors) {
  LayerFlow gradients;  // until they are copied
  std::vector<size_t> gathered;
  std::vector<PinnedCopies::Out> copies;
  absl::Status status = CatchTorch("reading the gradients", [&] {
    const c10::NoGradGuard no_grad;
    for (const size_t i : tensors) {
      at::Tensor gradient = std::exchange(tensors_[i].tensor.mutable_grad(), at::Tensor());
      if (!gradient.defined()) continue;
      TORCH_CHECK(gradient.layout() == c10::kStrided, tensors_[i].name,
                  " has a sparse gradient; only dense ones can be sent");
      gradient = gradient.contiguous();
      copies.push_back({From(gradient), session_->gradient(i).data(), gradient.nbytes()});
      gathered.push_back(i);
      gradients.push_back(std::move(gradient));
    }
  });
  if (status.ok()) status = copies_->ToHost(copies, Deadline());
  for (size_t k = 0; k < gathered.size() && status.ok(); ++k) {
    status = binding_->PushFilled(gathered[k]);
  }
  return status;
}

void DeviceStageBinding::DropGradients() {
  had_backward_ = false;
  binding_->DropGradients();
  for (const NamedTensor& named : tensors_) {
    if (named.tensor.requires_grad()) named.tensor.mutable_grad() = at::Tensor();
  }
}

absl::StatusOr<Verdict> DeviceStageBinding::Complete(double loss_sum) {
  if (std::exchange(had_backward_, false)) {
    if (absl::Status status = FetchBuffers(); !status.ok()) return status;
  }
  return binding_->Complete(loss_sum);
}

absl::Status DeviceStageBinding::PullAhead() {
  absl::Status status = binding_->Pull();
  return status.ok() ? BringValues() : status;
}

absl::Status DeviceStageBinding::PullVersion(uint64_t version) {
  absl::Status status = binding_->PullVersion(version);
  return status.ok() ? BringValues() : status;
}

absl::Status DeviceStageBinding::Settle() {
  absl::Status status = device_.Record(*computed_, StreamId::kCompute);
  if (status.ok()) status = device_.Await(*computed_, Deadline());
  if (status.ok()) reads_peers_ = false;
  return status;
}

absl::Status DeviceStageBinding::SettlePeers() {
  return reads_peers_ ? Settle() : absl::OkStatus();
}

absl::StatusOr<LayerFlow> DeviceStageBinding::FromHost(LayerFlow flow) {
  LayerFlow there;
  std::vector<PinnedCopies::In> copies;
  absl::Status status = CatchTorch(absl::StrCat("tensors for ", device_.name()), [&] {
    for (at::Tensor& tensor : flow) {
      tensor = tensor.contiguous();
      there.push_back(EmptyLike(tensor, where_));
      copies.push_back(In(tensor, there.back()));
    }
  });
  if (status.ok()) status = copies_->ToDevice(copies, Deadline());
  if (!status.ok()) return status;
  return there;
}

absl::StatusOr<LayerFlow> DeviceStageBinding::ToHost(LayerFlow flow) {
  LayerFlow here;
  absl::Status given;
  absl::Status status = CatchTorch(absl::StrCat("tensors of ", device_.name()), [&] {
    for (at::Tensor& tensor : flow) {
      tensor = tensor.contiguous();
      const auto memory = sent_.Take(tensor.nbytes());
      if (!memory.ok()) {
        given = memory.status();
        return;
      }
      here.push_back(at::from_blob(
          memory->get(), tensor.sizes(), [held = *memory](void*) {},
          tensor.options().device(at::kCPU)));
      if (tensor.nbytes() == 0) continue;
      given.Update(
          device_.CopyToHost(StreamId::kCompute, memory->get(), From(tensor), tensor.nbytes()));
    }
  });
  status.Update(given);
  if (status.ok()) status = Settle();
  if (!status.ok()) return status;
  for (const at::Tensor& tensor : here) device_.HostReads(From(tensor), tensor.nbytes());
  return here;
}

std::string DeviceStageBinding::peer_handle() {
  const auto place = outbox_.Take(1);
  return place.ok() ? absl::StrCat(BootId(), kAfterBootId, place->handle) : "";
}

absl::StatusOr<const std::byte*> DeviceStageBinding::Opened(const std::string& handle) {
  const auto found = opened_.find(handle);
  if (found != opened_.end()) return found->second.data();
  auto memory = device_.OpenShared(handle);
  if (!memory.ok()) return memory.status();
  return opened_.emplace(handle, *std::move(memory)).first->second.data();
}

bool DeviceStageBinding::Reaches(const std::string& handle) {
  // Machines can have the same name.
  absl::string_view there = handle;
  return absl::ConsumePrefix(&there, BootId()) && absl::ConsumePrefix(&there, kAfterBootId) &&
         Opened(std::string(there)).ok();
}

void DeviceStageBinding::ForgetPeers() {
  // Copies from there: of a unit that was given up.
  SettlePeers().IgnoreError();
  opened_.clear();
}

absl::StatusOr<std::vector<PeerTensor>> DeviceStageBinding::ToPeer(LayerFlow flow) {
  std::vector<PeerTensor> placed;
  absl::Status given;
  absl::Status status = CatchTorch(absl::StrCat("tensors of ", device_.name()), [&] {
    for (at::Tensor& tensor : flow) {
      tensor = tensor.contiguous();
      const auto place = outbox_.Take(tensor.nbytes());
      if (!place.ok()) {
        // Unavailable would be a process that is gone.
        given = absl::IsUnavailable(place.status()) ? absl::InternalError(place.status().message())
                                                    : place.status();
        return;
      }
      placed.push_back({std::string(place->handle), place->block_bytes, place->offset,
                        ToDataType(tensor.scalar_type()), tensor.sizes().vec()});
      if (tensor.nbytes() == 0) continue;
      given.Update(
          device_.CopyOnDevice(StreamId::kCompute, place->memory, From(tensor), tensor.nbytes()));
    }
  });
  status.Update(given);
  if (status.ok()) status = Settle();
  if (!status.ok()) return status;
  return placed;
}

absl::StatusOr<LayerFlow> DeviceStageBinding::FromPeer(absl::Span<const PeerTensor> tensors) {
  LayerFlow here;
  absl::Status given;
  absl::Status status = CatchTorch(absl::StrCat("tensors for ", device_.name()), [&] {
    for (const PeerTensor& tensor : tensors) {
      const auto type = ToScalarType(tensor.dtype);
      TORCH_CHECK(type.has_value(), "a tensor of a type that LibTorch has not");
      here.push_back(at::empty(tensor.shape, at::TensorOptions().dtype(*type).device(where_)));
      const at::Tensor& to = here.back();
      if (to.nbytes() == 0) continue;
      const auto block = Opened(tensor.handle);
      if (!block.ok()) {
        given = absl::InternalError(absl::StrCat(
            "a tensor of another stage's GPU cannot be reached: ", block.status().message(),
            "; with pipeline.peer_copies: false in the job file it goes by the host"));
        return;
      }
      reads_peers_ = true;
      given.Update(
          device_.CopyOnDevice(StreamId::kCompute, To(to), *block + tensor.offset, to.nbytes()));
    }
  });
  status.Update(given);
  if (!status.ok()) return status;
  return here;
}

}  // namespace parley
