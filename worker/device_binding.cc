#include "worker/device_binding.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "client/torch/named_tensors.h"
#include "client/torch/torch_status.h"
#include "common/clock/steady_now.h"
#include "common/tensor.h"

namespace parley {

namespace {

// As its bytes are copied.
at::Tensor OnHost(const at::Tensor& samples) {
  if (!samples.defined()) return at::empty({0});
  return samples.to(at::kCPU).contiguous();
}

}  // namespace

class DeviceBinding::GradientHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  GradientHook(DeviceBinding& binding, size_t tensor) : binding_(binding), tensor_(tensor) {}
  void operator()(const at::Tensor& /*parameter*/) override { binding_.GradientArrived(tensor_); }

 private:
  DeviceBinding& binding_;
  const size_t tensor_;
};

absl::StatusOr<std::unique_ptr<TrainingBinding>> DeviceBinding::Make(ModuleBinding::Lister network,
                                                                     ComputeDevice& device,
                                                                     const Options& options) {
  auto binding = absl::WrapUnique(new DeviceBinding(std::move(network), device, options));
  if (absl::Status status = binding->Start(); !status.ok()) return status;
  return binding;
}

DeviceBinding::DeviceBinding(ModuleBinding::Lister network, ComputeDevice& device,
                             const Options& options)
    : network_(std::move(network)),
      device_(device),
      options_(options),
      where_(device.torch_device()) {}

absl::Time DeviceBinding::Deadline() const { return SteadyNow() + options_.patience; }

bool DeviceBinding::IsParameter(size_t i) const { return !binding_->specs()[i].buffer(); }

bool DeviceBinding::IsTrained(size_t i) const {
  return IsParameter(i) && tensors_[i].requires_grad();
}

absl::Status DeviceBinding::Start() {
  absl::Status status =
      CatchTorch("copying the network", [&] { shadows_ = ShadowsOf(network_()); });
  if (!status.ok()) return status;
  auto binding = ModuleBinding::Create(ModuleBinding::Lister([this] { return shadows_; }));
  if (!binding.ok()) return binding.status();
  binding_ = *std::move(binding);

  std::vector<uint64_t> elements;
  for (const TensorSpec& spec : binding_->specs()) {
    if (!spec.buffer() && spec.dtype() != F32) {
      return absl::InvalidArgumentError(
          absl::StrCat(spec.name(), " is not float32: on GPUs others are not in this release"));
    }
    const size_t i = elements.size();
    elements.push_back(spec.buffer() ? 0 : static_cast<uint64_t>(shadows_[i].tensor.numel()));
  }
  plan_ = PlanBuckets(elements, options_.group == nullptr ? options_.bucket_elements
                                                          : options_.group_bucket_elements);

  const size_t bytes = plan_.largest * sizeof(float);
  if (options_.group == nullptr) {
    // Room for a whole step: backward never waits.
    auto out = GradientPath::Make(device_, {bytes, 2, plan_.buckets.size()});
    if (!out.ok()) return out.status();
    out_ = *std::move(out);
    delivery_ = std::make_unique<GradientDelivery>(
        *out_, options_.patience,
        [this](size_t bucket, absl::Span<const std::byte> values) { return Push(bucket, values); });
  } else {
    together_ = std::make_unique<GroupStream>(device_, options_.patience);
    for (std::unique_ptr<DeviceEvent>& end : broadcast_) {
      auto made = device_.MakeEvent();
      if (!made.ok()) return made.status();
      end = *std::move(made);
    }
    auto among = GroupGradientPath::Make(device_, *together_);
    if (!among.ok()) return among.status();
    among_ = *std::move(among);
  }
  if (options_.group == nullptr && options_.leaves_out_zeros) {
    std::vector<size_t> bytes;
    for (const uint64_t each : elements) {
      bytes.push_back(each >= options_.direct_gradient ? each * sizeof(float) : 0);
    }
    auto zeros = MostlyZeroGradients::Make(device_, bytes);
    if (!zeros.ok()) return zeros.status();
    zeros_ = *std::move(zeros);
  }
  DeviceValues::Options of_values;
  of_values.staged_elements = options_.staged_values;
  of_values.bucket_elements = options_.small_values;
  of_values.tiny = options_.tiny_values;
  of_values.direct = options_.direct_values;
  of_values.patience = options_.patience;
  auto values = DeviceValues::Make(device_, binding_->specs(), of_values);
  if (!values.ok()) return values.status();
  values_ = *std::move(values);
  auto buffers = DeviceBuffers::Make(device_, network_, shadows_, options_.patience);
  if (!buffers.ok()) return buffers.status();
  buffers_ = *std::move(buffers);
  auto bad = device_.Allocate("unscaling", sizeof(uint32_t));
  if (!bad.ok()) return bad.status();
  bad_ = *std::move(bad);
  auto computed = device_.MakeEvent();
  if (!computed.ok()) return computed.status();
  computed_ = *std::move(computed);
  return MoveToDevice();
}

absl::Status DeviceBinding::MoveToDevice() {
  absl::MutexLock lock(&mu_);
  const std::vector<NamedTensor> listed = network_();
  tensors_.resize(listed.size());
  gradients_.resize(listed.size());
  on_device_.resize(listed.size());
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < listed.size(); ++i) {
    at::Tensor tensor = listed[i].tensor;
    const std::string what = absl::StrCat("moving ", listed[i].name, " (", tensor.nbytes(),
                                          " bytes) to ", device_.name());
    absl::Status moved = CatchTorch(what, [&] { tensor.set_data(tensor.to(where_).contiguous()); });
    if (!moved.ok()) return moved;
    if (!IsParameter(i)) continue;
    tensors_[i] = tensor;
    on_device_[i] = tensor.const_data_ptr();
    torch::autograd::impl::set_post_acc_grad_hooks(tensor,
                                                   std::make_unique<GradientHook>(*this, i));
  }
  return absl::OkStatus();
}

DeviceBinding::~DeviceBinding() {
  // A device that does not come to an end is lost.
  if (together_ != nullptr) together_->Abort().IgnoreError();
  values_.reset();
  delivery_.reset();
  CatchTorch("taking the hooks off the parameters", [&] {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (!tensors_[i].defined()) continue;
      torch::autograd::impl::set_post_acc_grad_hooks(tensors_[i], nullptr);
    }
  }).IgnoreError();
}

absl::Status DeviceBinding::Attach(Session& session, uint64_t training_samples,
                                   uint64_t test_samples) {
  session_ = &session;
  absl::Status status = binding_->Attach(session, training_samples, test_samples);
  if (!status.ok()) return status;
  PinGradients();
  values_->Attach(session, tensors_);
  buffers_->Attach(session, *binding_);
  pulled_ = true;
  return BringPulled();
}

absl::StatusOr<TrainingBinding::Samples> DeviceBinding::ToNetwork(const Samples& given) {
  Samples batch = given;
  absl::Status dense = CatchTorch("the samples", [&] {
    batch.x = OnHost(given.x);
    batch.y = OnHost(given.y);
  });
  if (!dense.ok()) return dense;
  const auto bytes = [](const at::Tensor& tensor) {
    return absl::MakeConstSpan(static_cast<const std::byte*>(tensor.const_data_ptr()),
                               tensor.nbytes());
  };
  const absl::Span<const std::byte> parts[] = {bytes(batch.x), bytes(batch.y)};
  const bool no_room = samples_ == nullptr || SamplePath::RoomFor(parts) > samples_->batch_bytes();
  // Room is made when the device has done what it was given.
  absl::Status others = AwaitBroadcasts(no_room ? 0 : DeviceValues::kMostShared);
  if (!others.ok()) return others;
  if (no_room) {
    samples_.reset();
    auto path = SamplePath::Make(device_, {SamplePath::RoomFor(parts)});
    if (!path.ok()) return path.status();
    samples_ = *std::move(path);
  }
  Samples there;
  auto brought = batch.pinned ? samples_->BringPinned(parts) : samples_->Bring(parts, Deadline());
  if (absl::IsUnavailable(brought.status())) {
    // The network keeps tensors of batches before.
    absl::Status status = CatchTorch("copying samples", [&] {
      there = {batch.x.to(where_, /*non_blocking=*/false, /*copy=*/true),
               batch.y.to(where_, /*non_blocking=*/false, /*copy=*/true)};
    });
    if (!status.ok()) return status;
    return there;
  }
  if (!brought.ok()) return brought.status();
  absl::Status status = CatchTorch("samples on the device", [&] {
    const auto tensor = [&](const at::Tensor& on_host, size_t part) {
      std::shared_ptr<SamplePath::Batch> held = *brought;
      return at::from_blob(
          held->parts()[part], on_host.sizes(), [held](void*) {}, on_host.options().device(where_),
          where_);
    };
    there = {tensor(batch.x, 0), tensor(batch.y, 1)};
  });
  if (!status.ok()) return status;
  return there;
}

absl::Status DeviceBinding::AwaitSamples() {
  if (samples_ == nullptr) return absl::OkStatus();
  absl::Status status = AwaitBroadcasts(DeviceValues::kMostShared);
  return status.ok() ? samples_->AwaitPinned(Deadline()) : status;
}

absl::Status DeviceBinding::CheckForward() const {
  if (!pulled_) return PullComesFirst();
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (IsParameter(i) && tensors_[i].const_data_ptr() != on_device_[i]) {
      return HasOtherMemory(binding_->specs()[i]);
    }
  }
  return absl::OkStatus();
}

absl::Status DeviceBinding::Backward(const at::Tensor& loss, bool last) {
  if (absl::Status status = CheckForward(); !status.ok()) return status;
  if (absl::Status status = values_->EndForward(); !status.ok()) return status;
  if (!lost_.ok()) return absl::OkStatus();  // in forward
  if (absl::Status status = FollowGroup(); !status.ok()) return status;
  if (last) {
    if (absl::Status status = values_->BringRest(); !status.ok()) return status;
    if (!lost_.ok()) return absl::OkStatus();
    if (absl::Status status = BeginSending(); !status.ok()) return status;
  }
  BeginBackward(last);
  absl::Status status;
  {
    const StreamWork work(&device_, StreamId::kCompute, "backward");
    status = CatchTorch("backward", [&] { loss.backward(); });
  }
  {
    absl::MutexLock lock(&mu_);
    // An error of the device comes before what LibTorch made of it.
    if (!error_.ok()) return error_;
    if (!status.ok() || !last) return status;
    // Had their gradient in an earlier microbatch, but not in the last.
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (!IsParameter(i)) continue;
      at::Tensor gradient = std::exchange(tensors_[i].mutable_grad(), at::Tensor());
      if (gradient.defined()) gradients_[i] = gradient.contiguous();
    }
  }
  return options_.group != nullptr ? SendRest() : SendWhatIsLeft();
}

absl::Status DeviceBinding::Settle() {
  // First what can be lost with another rank, for which the compute stream may wait.
  absl::Status status;
  if (std::exchange(to_add_up_, false)) status = TakeAllSums();
  if (status.ok()) status = device_.Record(*computed_, StreamId::kCompute);
  if (status.ok()) status = device_.Await(*computed_, Deadline());
  if (status.ok() && delivery_ != nullptr) status = delivery_->AwaitAll();
  return status;
}

void DeviceBinding::DropDeviceGradients() {
  absl::MutexLock lock(&mu_);
  for (at::Tensor& tensor : tensors_) {
    if (tensor.defined()) tensor.mutable_grad() = at::Tensor();
  }
  gradients_.assign(tensors_.size(), at::Tensor());
}

absl::StatusOr<Verdict> DeviceBinding::Complete(double loss_sum) {
  pulled_ = false;
  if (options_.group != nullptr && !had_backward_ && lost_.ok()) {
    // Without samples it owns sums all the same.
    if (absl::Status status = FollowGroup(); !status.ok()) return status;
    if (absl::Status status = values_->BringRest(); !status.ok()) return status;
    if (pinned_memory_ != session_->gradient_memory()) PinGradients();
    BeginBackward(/*last=*/true);
    had_backward_ = false;
    if (lost_.ok()) {
      if (absl::Status status = SendRest(); !status.ok()) return status;
    }
  }
  if (to_add_up_) {
    if (absl::Status status = Settle(); !status.ok()) return status;
  }
  if (absl::Status lost = std::exchange(lost_, absl::OkStatus()); !lost.ok()) {
    had_backward_ = false;
    binding_->DropGradients();
    DropDeviceGradients();
    if (absl::Status status = buffers_->Receive(/*push=*/false); !status.ok()) return status;
    return session_->Abandon(lost);
  }
  if (std::exchange(had_backward_, false)) {
    if (absl::Status status = Settle(); !status.ok()) return status;
    // Where no gradient has brought them.
    if (absl::Status status = buffers_->Receive(/*push=*/true); !status.ok()) return status;
  }
  return binding_->Complete(loss_sum);
}

absl::Status DeviceBinding::BringPulled() {
  absl::Status status = values_->BringAll();
  return status.ok() ? buffers_->Bring() : status;
}

absl::Status DeviceBinding::Pull(bool ahead) {
  values_->Stop();
  absl::Status status = ahead ? session_->PullAhead() : binding_->Pull();
  if (!status.ok()) return status;
  pulled_ = true;
  if (!ahead) return BringPulled();
  status = values_->BringAsUsed();
  return status.ok() ? buffers_->Bring() : status;
}

absl::StatusOr<std::optional<Session::PendingEvaluation>> DeviceBinding::PullEvaluation() {
  const uint64_t version = session_->version();
  const uint64_t job_epoch = session_->epochs().job;
  auto due = binding_->PullEvaluation();
  if (!due.ok()) return due;
  if (!due->has_value() && session_->version() == version && session_->epochs().job == job_epoch) {
    return due;  // nothing was pulled
  }
  if (absl::Status status = BringPulled(); !status.ok()) return status;
  return due;
}

}  // namespace parley
