// DeviceBinding: how gradients leave the device.
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/tensor.h"
#include "worker/device_binding.h"

namespace parley {

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

}  // namespace parley
