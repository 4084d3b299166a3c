#include "worker/device_binding.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/torch/torch_status.h"

namespace parley {

class DeviceBinding::GradientHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  GradientHook(DeviceBinding& binding, size_t tensor) : binding_(binding), tensor_(tensor) {}
  void operator()(const at::Tensor& /*parameter*/) override { binding_.GradientArrived(tensor_); }

 private:
  DeviceBinding& binding_;
  const size_t tensor_;
};

absl::StatusOr<std::unique_ptr<TrainingBinding>> DeviceBinding::Make(const Network& network,
                                                                     ComputeDevice& device,
                                                                     const Options& options) {
  auto binding = absl::WrapUnique(new DeviceBinding(network, device, options));
  if (absl::Status status = binding->Start(); !status.ok()) return status;
  return binding;
}

DeviceBinding::DeviceBinding(const Network& network, ComputeDevice& device, const Options& options)
    : network_(network), device_(device), options_(options), where_(device.torch_device()) {}

absl::Time DeviceBinding::Deadline() const { return absl::Now() + options_.patience; }

bool DeviceBinding::IsTrained(size_t i) const {
  return !binding_->specs()[i].buffer() && shadows_[i].tensor.requires_grad();
}

absl::Status DeviceBinding::Start() {
  absl::Status status = CatchTorch("copying the network", [&] {
    const c10::NoGradGuard no_grad;
    for (const NamedTensor& named : network_.Tensors()) {
      at::Tensor shadow = named.tensor.detach().clone(at::MemoryFormat::Contiguous);
      shadow.set_requires_grad(named.tensor.requires_grad());
      shadows_.push_back({named.name, std::move(shadow), named.buffer});
    }
  });
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
  plan_ = PlanBuckets(elements, options_.bucket_elements);
  offset_.assign(elements.size(), 0);
  for (const std::vector<size_t>& bucket : plan_.buckets) {
    uint64_t offset = 0;
    for (const size_t i : bucket) offset_[i] = std::exchange(offset, offset + elements[i]);
  }

  const size_t bytes = plan_.largest * sizeof(float);
  // Room for a whole step: backward never waits.
  auto out = GradientPath::Make(device_, {bytes, 2, plan_.buckets.size()});
  if (!out.ok()) return out.status();
  out_ = *std::move(out);
  auto in = ParameterPath::Make(device_, {bytes, 2, 4});
  if (!in.ok()) return in.status();
  in_ = *std::move(in);
  return CatchTorch(absl::StrCat("moving the network to ", device_.name()),
                    [&] { MoveToDevice(); });
}

void DeviceBinding::MoveToDevice() {
  absl::MutexLock lock(&mu_);
  missing_.assign(plan_.buckets.size(), 0);
  sent_.resize(plan_.buckets.size());
  const std::vector<NamedTensor> listed = network_.Tensors();
  tensors_.resize(listed.size());
  gradients_.resize(listed.size());
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < listed.size(); ++i) {
    at::Tensor tensor = listed[i].tensor;
    tensor.set_data(tensor.to(where_).contiguous());
    if (binding_->specs()[i].buffer()) continue;
    tensors_[i] = tensor;
    if (!IsTrained(i)) continue;
    torch::autograd::impl::set_post_acc_grad_hooks(tensor,
                                                   std::make_unique<GradientHook>(*this, i));
  }
}

DeviceBinding::~DeviceBinding() {
  CatchTorch("taking the hooks off the parameters", [&] {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (!tensors_[i].defined() || !IsTrained(i)) continue;
      torch::autograd::impl::set_post_acc_grad_hooks(tensors_[i], nullptr);
    }
  }).IgnoreError();
}

absl::Status DeviceBinding::Attach(Session& session, uint64_t training_samples,
                                   uint64_t test_samples) {
  session_ = &session;
  absl::Status status = binding_->Attach(session, training_samples, test_samples);
  return status.ok() ? BringParameters() : status;
}

at::Tensor DeviceBinding::ToNetwork(const at::Tensor& batch) { return batch.to(where_); }

void DeviceBinding::GradientArrived(size_t i) {
  const c10::NoGradGuard no_grad;
  const size_t bucket = plan_.bucket_of[i];
  {
    absl::MutexLock lock(&mu_);
    // LibTorch adds up those of the microbatches.
    if (!last_ || !error_.ok() || bucket == BucketPlan::kNone) return;
    at::Tensor gradient = std::exchange(tensors_[i].mutable_grad(), at::Tensor());
    if (!gradient.defined()) return;
    if (gradient.layout() != c10::kStrided) {
      error_ = absl::InvalidArgumentError(absl::StrCat(
          binding_->specs()[i].name(), " has a sparse gradient; only dense ones can be sent"));
      return;
    }
    gradients_[i] = gradient.contiguous();
    if (missing_[bucket] == 0 || --missing_[bucket] > 0) return;
  }
  absl::Status sent = Send(bucket);
  absl::MutexLock lock(&mu_);
  error_.Update(sent);
}

absl::Status DeviceBinding::Send(size_t bucket) {
  // Until the compute stream has been told to pack them; what it is told later may have their
  // memory.
  std::vector<at::Tensor> kept;
  std::vector<Piece> pieces;
  uint64_t elements = 0;
  {
    absl::MutexLock lock(&mu_);
    for (const size_t i : plan_.buckets[bucket]) {
      at::Tensor gradient = std::exchange(gradients_[i], at::Tensor());
      if (!gradient.defined()) continue;
      const auto count = static_cast<uint64_t>(gradient.numel());
      pieces.push_back({gradient.mutable_data_ptr<float>(), offset_[i], count});
      elements = offset_[i] + count;
      sent_[bucket].push_back(i);
      kept.push_back(std::move(gradient));
    }
  }
  if (pieces.empty()) return absl::OkStatus();
  return out_->Send(bucket, pieces, /*scale=*/1, BucketType::kFloat32, elements * sizeof(float),
                    Deadline());
}

absl::Status DeviceBinding::Push(size_t bucket, absl::Span<const std::byte> values) {
  std::vector<size_t> tensors;
  {
    absl::MutexLock lock(&mu_);
    tensors.swap(sent_[bucket]);
  }
  absl::Status status = CatchTorch("taking gradients from the device", [&] {
    for (const size_t i : tensors) {
      // It is only read.
      auto* const data = const_cast<std::byte*>(values.data()) + offset_[i] * sizeof(float);
      binding_->AddGradient(shadows_[i].tensor,
                            at::from_blob(data, shadows_[i].tensor.sizes(), at::kFloat));
    }
  });
  return status.ok() ? binding_->PushGathered(tensors) : status;
}

absl::Status DeviceBinding::Backward(const at::Tensor& loss, bool last) {
  had_backward_ = true;
  {
    absl::MutexLock lock(&mu_);
    last_ = last;
    for (size_t bucket = 0; bucket < plan_.buckets.size(); ++bucket) {
      missing_[bucket] = 0;
      for (const size_t i : plan_.buckets[bucket]) missing_[bucket] += IsTrained(i) ? 1 : 0;
    }
  }
  absl::Status status = CatchTorch("backward", [&] { loss.backward(); });
  {
    absl::MutexLock lock(&mu_);
    // An error of the device comes before what LibTorch made of it.
    if (!error_.ok()) return error_;
    if (!status.ok() || !last) return status;
    // Had their gradient in an earlier microbatch, but not in the last.
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (!tensors_[i].defined() || !IsTrained(i)) continue;
      at::Tensor gradient = std::exchange(tensors_[i].mutable_grad(), at::Tensor());
      if (gradient.defined()) gradients_[i] = gradient.contiguous();
    }
  }
  // Those of which backward has not given all.
  for (size_t bucket = plan_.buckets.size(); bucket-- > 0;) {
    if (status = Send(bucket); !status.ok()) return status;
  }
  // The shadows' buffers and gradients are the step's from here on.
  if (status = binding_->GatherGradients([] {}); !status.ok()) return status;
  while (true) {
    const auto more =
        out_->Deliver(Deadline(), [&](size_t bucket, auto values) { return Push(bucket, values); });
    if (!more.ok()) return more.status();
    if (!*more) return absl::OkStatus();
  }
}

absl::StatusOr<Verdict> DeviceBinding::Complete(double loss_sum) {
  if (std::exchange(had_backward_, false)) {
    if (absl::Status status = CopyBuffers(/*to_device=*/false); !status.ok()) return status;
  }
  return binding_->Complete(loss_sum);
}

absl::Status DeviceBinding::CopyBuffers(bool to_device) {
  return CatchTorch("copying the buffers", [&] {
    const c10::NoGradGuard no_grad;
    const std::vector<NamedTensor> listed = network_.Tensors();
    TORCH_CHECK(listed.size() == shadows_.size(),
                "the module's list of tensors has changed while it was trained");
    for (size_t i = 0; i < listed.size(); ++i) {
      if (!binding_->specs()[i].buffer()) continue;
      if (to_device) {
        listed[i].tensor.copy_(shadows_[i].tensor);
      } else {
        shadows_[i].tensor.copy_(listed[i].tensor);
      }
    }
  });
}

absl::Status DeviceBinding::BringParameters() {
  for (const std::vector<size_t>& bucket : plan_.buckets) {
    std::vector<Piece> pieces;
    uint64_t elements = 0;
    for (const size_t i : bucket) {
      const auto count = static_cast<uint64_t>(tensors_[i].numel());
      pieces.push_back({tensors_[i].mutable_data_ptr<float>(), offset_[i], count});
      elements = offset_[i] + count;
    }
    absl::Status status = in_->Bring(pieces, BucketType::kFloat32, elements * sizeof(float),
                                     Deadline(), [&](absl::Span<std::byte> values) {
                                       for (const size_t i : bucket) {
                                         const auto from = session_->parameter(i);
                                         std::memcpy(values.data() + offset_[i] * sizeof(float),
                                                     from.data(), from.size());
                                       }
                                       return absl::OkStatus();
                                     });
    if (!status.ok()) return status;
  }
  return CopyBuffers(/*to_device=*/true);
}

absl::Status DeviceBinding::Pull(bool /*ahead*/) {
  absl::Status status = binding_->Pull();
  return status.ok() ? BringParameters() : status;
}

absl::StatusOr<std::optional<Session::PendingEvaluation>> DeviceBinding::PullEvaluation() {
  const uint64_t version = session_->version();
  const uint64_t job_epoch = session_->epochs().job;
  auto due = binding_->PullEvaluation();
  if (!due.ok()) return due;
  if (!due->has_value() && session_->version() == version && session_->epochs().job == job_epoch) {
    return due;  // nothing was pulled
  }
  if (absl::Status status = BringParameters(); !status.ok()) return status;
  return due;
}

}  // namespace parley
