#include "worker/device_binding.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/torch/torch_status.h"
#include "common/tensor.h"

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
  const std::vector<NamedTensor> listed = network_.Tensors();
  tensors_.resize(listed.size());
  gradients_.resize(listed.size());
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < listed.size(); ++i) {
    at::Tensor tensor = listed[i].tensor;
    const std::string what = absl::StrCat("moving ", listed[i].name, " (", tensor.nbytes(),
                                          " bytes) to ", device_.name());
    absl::Status moved = CatchTorch(what, [&] { tensor.set_data(tensor.to(where_).contiguous()); });
    if (!moved.ok()) return moved;
    if (binding_->specs()[i].buffer()) continue;
    tensors_[i] = tensor;
    if (!IsTrained(i)) continue;
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
      if (!tensors_[i].defined() || !IsTrained(i)) continue;
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
  return BringPulled();
}

absl::StatusOr<TrainingBinding::Samples> DeviceBinding::ToNetwork(const Samples& batch) {
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

void DeviceBinding::PinGradients() {
  if (binding_->specs().empty()) return;
  pinned_gradients_ = DeviceBuffer();
  pinned_memory_ = session_->gradient_memory();
  for (size_t i = 0; zeros_ != nullptr && i < tensors_.size(); ++i) zeros_->Forget(i);
  // One piece of memory, but for what aligns them.
  constexpr std::ptrdiff_t kGap = 64;
  std::byte* const begin = session_->gradient(0).data();
  std::byte* end = begin;
  for (size_t i = 0; i < binding_->specs().size(); ++i) {
    const absl::Span<std::byte> gradient = session_->gradient(i);
    if (gradient.data() < end || gradient.data() - end > kGap) return;
    end = gradient.data() + gradient.size();
  }
  auto pinned = device_.Pin("the session's gradients", {begin, static_cast<size_t>(end - begin)},
                            /*read_only=*/false);
  // Else gradients are copied once more, on the host.
  if (pinned.ok()) pinned_gradients_ = *std::move(pinned);
}

void DeviceBinding::BeginBackward(bool last) {
  had_backward_ = true;
  to_add_up_ = false;
  sent_.assign(plan_.buckets.size(), {});
  undelivered_.assign(tensors_.size(), 0);
  is_direct_.assign(tensors_.size(), false);
  on_their_way_.resize(tensors_.size());
  rounds_ = options_.group == nullptr && session_->gradients_on_wire() == BF16;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    undelivered_[i] = plan_.buckets_of[i].size();
    is_direct_[i] = options_.group == nullptr && !rounds_ && pinned_gradients_.size() > 0 &&
                    IsTrained(i) &&
                    session_->gradient(i).size() / sizeof(float) >= options_.direct_gradient;
    if (zeros_ != nullptr && !is_direct_[i]) zeros_->Forget(i);
  }
  if (zeros_ != nullptr && last) zeros_->BeginStep();
  // What this rank owns of the sums goes there in any size: each part is a copy anyway.
  if (options_.group != nullptr) among_->ToOwner(pinned_gradients_.size() > 0);
  absl::MutexLock lock(&mu_);
  last_ = last;
  is_sent_.assign(plan_.buckets.size(), false);
  missing_.assign(plan_.buckets.size(), 0);
  unsent_.assign(tensors_.size(), 0);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    unsent_[i] = plan_.buckets_of[i].size();
    if (!IsTrained(i) || is_direct_[i]) continue;
    for (const size_t bucket : plan_.buckets_of[i]) ++missing_[bucket];
  }
}

void DeviceBinding::GradientArrived(size_t i) {
  const c10::NoGradGuard no_grad;
  std::vector<size_t> whole;
  at::Tensor direct;
  {
    absl::MutexLock lock(&mu_);
    // LibTorch adds up those of the microbatches.
    if (!last_ || records_ || !error_.ok()) return;
    at::Tensor gradient = std::exchange(tensors_[i].mutable_grad(), at::Tensor());
    if (!gradient.defined()) return;
    if (gradient.layout() != c10::kStrided) {
      error_ = absl::InvalidArgumentError(absl::StrCat(
          binding_->specs()[i].name(), " has a sparse gradient; only dense ones can be sent"));
      return;
    }
    gradient = gradient.contiguous();
    if (is_direct_[i]) {
      direct = std::move(gradient);
    } else {
      gradients_[i] = std::move(gradient);
      for (const size_t bucket : plan_.buckets_of[i]) {
        if (missing_[bucket] > 0 && --missing_[bucket] == 0) whole.push_back(bucket);
      }
    }
  }
  if (direct.defined()) {
    absl::Status sent = SendDirect(i, std::move(direct));
    absl::MutexLock lock(&mu_);
    error_.Update(sent);
    return;
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
  std::vector<size_t> present;
  {
    absl::MutexLock lock(&mu_);
    if (is_sent_[bucket]) return absl::OkStatus();
    is_sent_[bucket] = true;
    for (size_t k = 0; k < plan_.buckets[bucket].size(); ++k) {
      const BucketPlan::Part& part = plan_.buckets[bucket][k];
      if (is_direct_[part.tensor]) continue;
      at::Tensor gradient = gradients_[part.tensor];
      if (--unsent_[part.tensor] == 0) gradients_[part.tensor] = at::Tensor();
      if (!gradient.defined()) continue;
      present.push_back(k);
      pieces.push_back({gradient.mutable_data_ptr<float>() + part.begin, part.offset, part.count});
      kept.push_back(std::move(gradient));
      sent_[bucket].push_back(part);
    }
  }
  if (options_.group != nullptr) {
    const auto weight = static_cast<float>(options_.group->sums().weight());
    return among_->Send(bucket, pieces, present, weight * factor_);
  }
  if (pieces.empty()) return absl::OkStatus();
  // Close together: what goes directly, or has no gradient, would be copied too.
  uint64_t end = 0;
  for (size_t k = 0; k < pieces.size(); ++k) {
    sent_[bucket][k].offset = pieces[k].offset = end;
    end += pieces[k].count;
  }
  // Rounded on the device half of the bytes cross the bus.
  absl::Status status = rounds_ ? out_->Send(bucket, pieces, factor_, BucketType::kBFloat16,
                                             end * sizeof(uint16_t), Deadline())
                                : out_->Send(bucket, pieces, factor_, BucketType::kFloat32,
                                             end * sizeof(float), Deadline());
  if (status.ok()) delivery_->Sent();
  return status;
}

bool DeviceBinding::LeavesOutZeros(size_t tensor) const {
  return zeros_ != nullptr && !zeros_->blocks(tensor).empty();
}

absl::Status DeviceBinding::SendDirect(size_t i, at::Tensor gradient) {
  auto* const values = gradient.mutable_data_ptr<float>();
  absl::Status status;
  if (factor_ != 1) {
    status = device_.Unscale(StreamId::kCompute, values, static_cast<uint64_t>(gradient.numel()),
                             factor_, reinterpret_cast<uint32_t*>(bad_.data()));
  }
  on_their_way_[i] = std::move(gradient);
  if (!status.ok()) return status;
  const size_t bucket = plan_.buckets.size() + i;
  const absl::Span<std::byte> host = session_->gradient(i);
  if (LeavesOutZeros(i)) {
    status = out_->SendNonzero(bucket, values, host, zeros_->blocks(i));
    if (status.ok()) delivery_->Sent();
    if (!absl::IsUnavailable(status)) return status;
    zeros_->GiveUp(i);
  }
  const absl::StatusOr<size_t> pieces = out_->SendDirect(
      bucket, reinterpret_cast<std::byte*>(values), host, options_.direct_piece * sizeof(float));
  if (pieces.ok()) delivery_->Sent(*pieces);
  return pieces.status();
}

absl::Status DeviceBinding::Push(size_t bucket, absl::Span<const std::byte> values) {
  // They were sent before the first of these, by the same stream.
  if (absl::Status status = buffers_->Receive(/*push=*/true); !status.ok()) return status;
  if (bucket >= plan_.buckets.size()) {
    const size_t tensor = bucket - plan_.buckets.size();
    const absl::Span<std::byte> all = session_->gradient(tensor);
    const auto begin = static_cast<size_t>(values.data() - all.data());
    const bool whole = begin + values.size() == all.size();
    if (whole) on_their_way_[tensor] = at::Tensor();
    if (LeavesOutZeros(tensor)) return binding_->PushFilled(tensor, zeros_->Take(tensor));
    absl::Status status =
        whole ? binding_->PushFilled(tensor) : session_->PushUntil(tensor, begin + values.size());
    if (zeros_ != nullptr) zeros_->Look(tensor, begin, values);
    return status;
  }
  for (const BucketPlan::Part& part : sent_[bucket]) {
    std::byte* const to = session_->gradient(part.tensor).data() + part.begin * sizeof(float);
    if (rounds_) {
      const auto* const rounded = reinterpret_cast<const uint16_t*>(values.data()) + part.offset;
      std::transform(rounded, rounded + part.count, reinterpret_cast<float*>(to), BFloat16ToFloat);
    } else {
      std::memcpy(to, values.data() + part.offset * sizeof(float), part.count * sizeof(float));
    }
    if (--undelivered_[part.tensor] > 0) continue;
    if (absl::Status status = binding_->PushFilled(part.tensor); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status DeviceBinding::Backward(const at::Tensor& loss, bool last) {
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
      if (!IsTrained(i)) continue;
      at::Tensor gradient = std::exchange(tensors_[i].mutable_grad(), at::Tensor());
      if (gradient.defined()) gradients_[i] = gradient.contiguous();
    }
  }
  return options_.group != nullptr ? SendRest() : SendWhatIsLeft();
}

absl::Status DeviceBinding::BeginSending() {
  // The step has gradients, whoever has brought them; buffers go with it.
  if (absl::Status status = binding_->GatherGradients([] {}); !status.ok()) return status;
  if (absl::Status status = buffers_->Fetch(); !status.ok()) return status;
  if (pinned_memory_ != session_->gradient_memory()) PinGradients();
  return absl::OkStatus();
}

absl::Status DeviceBinding::SendWhatIsLeft() {
  for (size_t i = tensors_.size(); i-- > 0;) {
    at::Tensor gradient;
    {
      absl::MutexLock lock(&mu_);
      if (!is_direct_[i] || !gradients_[i].defined()) continue;
      gradient = std::exchange(gradients_[i], at::Tensor());
    }
    if (absl::Status status = SendDirect(i, std::move(gradient)); !status.ok()) return status;
  }
  // Those of which backward has not given all.
  for (size_t bucket = plan_.buckets.size(); bucket-- > 0;) {
    if (absl::Status status = Send(bucket); !status.ok()) return status;
  }
  return absl::OkStatus();
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
  absl::Status status = ahead ? binding_->PullBuffers() : binding_->Pull();
  if (!status.ok()) return status;
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
