#include "worker/device_binding.h"

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

void DeviceBinding::BeginBackward(bool last) {
  had_backward_ = true;
  sent_.assign(plan_.buckets.size(), {});
  undelivered_.assign(tensors_.size(), 0);
  absl::MutexLock lock(&mu_);
  last_ = last;
  is_sent_.assign(plan_.buckets.size(), false);
  missing_.assign(plan_.buckets.size(), 0);
  unsent_.assign(tensors_.size(), 0);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    unsent_[i] = plan_.buckets_of[i].size();
    if (!IsTrained(i)) continue;
    for (const size_t bucket : plan_.buckets_of[i]) ++missing_[bucket];
  }
}

void DeviceBinding::GradientArrived(size_t i) {
  const c10::NoGradGuard no_grad;
  std::vector<size_t> whole;
  {
    absl::MutexLock lock(&mu_);
    // LibTorch adds up those of the microbatches.
    if (!last_ || !error_.ok()) return;
    at::Tensor gradient = std::exchange(tensors_[i].mutable_grad(), at::Tensor());
    if (!gradient.defined()) return;
    if (gradient.layout() != c10::kStrided) {
      error_ = absl::InvalidArgumentError(absl::StrCat(
          binding_->specs()[i].name(), " has a sparse gradient; only dense ones can be sent"));
      return;
    }
    gradients_[i] = gradient.contiguous();
    for (const size_t bucket : plan_.buckets_of[i]) {
      if (missing_[bucket] > 0 && --missing_[bucket] == 0) whole.push_back(bucket);
    }
  }
  // The last part first: it goes to the host first, as the tensors do.
  for (size_t k = whole.size(); k-- > 0;) {
    absl::Status sent = Send(whole[k]);
    absl::MutexLock lock(&mu_);
    error_.Update(sent);
  }
}

absl::Status DeviceBinding::Send(size_t bucket) {
  // The compute stream is told to pack them before it can be told anything else that may get their
  // memory.
  std::vector<at::Tensor> kept;
  std::vector<Piece> pieces;
  {
    absl::MutexLock lock(&mu_);
    if (is_sent_[bucket]) return absl::OkStatus();
    is_sent_[bucket] = true;
    for (const BucketPlan::Part& part : plan_.buckets[bucket]) {
      at::Tensor gradient = gradients_[part.tensor];
      if (--unsent_[part.tensor] == 0) gradients_[part.tensor] = at::Tensor();
      if (!gradient.defined()) continue;
      pieces.push_back({gradient.mutable_data_ptr<float>() + part.begin, part.offset, part.count});
      kept.push_back(std::move(gradient));
      sent_[bucket].push_back(part);
      ++undelivered_[part.tensor];
    }
  }
  if (pieces.empty()) return absl::OkStatus();
  return out_->Send(bucket, pieces, /*scale=*/1, BucketType::kFloat32,
                    BucketPlan::Size(sent_[bucket]) * sizeof(float), Deadline());
}

absl::Status DeviceBinding::Push(size_t bucket, absl::Span<const std::byte> values) {
  for (const BucketPlan::Part& part : sent_[bucket]) {
    std::memcpy(session_->gradient(part.tensor).data() + part.begin * sizeof(float),
                values.data() + part.offset * sizeof(float), part.count * sizeof(float));
    if (--undelivered_[part.tensor] > 0) continue;
    if (absl::Status status = binding_->PushFilled(part.tensor); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status DeviceBinding::Backward(const at::Tensor& loss, bool last) {
  BeginBackward(last);
  absl::Status status = CatchTorch("backward", [&] { loss.backward(); });
  {
    absl::MutexLock lock(&mu_);
    // An error of the device comes before what LibTorch made of it.
    if (!error_.ok()) return error_;
    if (!status.ok() || !last) return status;
    // Had their gradient in an earlier microbatch, but not in the last.
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (!IsTrained(i)) continue;
      at::Tensor gradient = std::exchange(tensors_[i].mutable_grad(), at::Tensor());
      if (gradient.defined()) gradients_[i] = gradient.contiguous();
    }
  }
  // Those of which backward has not given all.
  for (size_t bucket = plan_.buckets.size(); bucket-- > 0;) {
    if (status = Send(bucket); !status.ok()) return status;
  }
  return DeliverAll();
}

absl::Status DeviceBinding::DeliverAll() {
  // The step has gradients, whoever has brought them.
  if (absl::Status status = binding_->GatherGradients([] {}); !status.ok()) return status;
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
  for (const std::vector<BucketPlan::Part>& bucket : plan_.buckets) {
    std::vector<Piece> pieces;
    for (const BucketPlan::Part& part : bucket) {
      pieces.push_back(
          {tensors_[part.tensor].mutable_data_ptr<float>() + part.begin, part.offset, part.count});
    }
    const auto fill = [&](absl::Span<std::byte> values) {
      for (const BucketPlan::Part& part : bucket) {
        std::memcpy(values.data() + part.offset * sizeof(float),
                    session_->parameter(part.tensor).data() + part.begin * sizeof(float),
                    part.count * sizeof(float));
      }
      return absl::OkStatus();
    };
    const size_t bytes = BucketPlan::Size(bucket) * sizeof(float);
    absl::Status status = in_->Bring(pieces, BucketType::kFloat32, bytes, Deadline(), fill);
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
