#include "worker/device_buffers.h"

#include <c10/core/ScalarType.h>

#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "client/torch/torch_status.h"
#include "common/clock/steady_now.h"

namespace parley {

absl::StatusOr<std::unique_ptr<DeviceBuffers>> DeviceBuffers::Make(
    ComputeDevice& device, const ModuleBinding::Lister& network,
    const std::vector<NamedTensor>& shadows, absl::Duration patience) {
  auto buffers = absl::WrapUnique(new DeviceBuffers(device, network, shadows, patience));
  size_t bytes = 0;
  for (size_t i = 0; i < shadows.size(); ++i) {
    if (!shadows[i].buffer) continue;
    buffers->tensors_.push_back(i);
    bytes += shadows[i].tensor.nbytes();
  }
  buffers->on_device_.resize(buffers->tensors_.size());
  auto path = BufferPath::Make(device, bytes, buffers->tensors_.size());
  if (!path.ok()) return path.status();
  buffers->path_ = *std::move(path);
  return buffers;
}

void DeviceBuffers::Attach(Session& session, ModuleBinding& module) {
  session_ = &session;
  module_ = &module;
}

absl::Time DeviceBuffers::Deadline() const { return SteadyNow() + patience_; }

absl::StatusOr<std::vector<at::Tensor>> DeviceBuffers::OfNetwork() const {
  std::vector<at::Tensor> buffers;
  absl::Status status = CatchTorch("listing the buffers", [&] {
    const std::vector<NamedTensor> listed = network_();
    TORCH_CHECK(listed.size() == shadows_.size(),
                "the module's list of tensors has changed while it was trained");
    for (const size_t i : tensors_) {
      const at::Tensor& buffer = listed[i].tensor;
      TORCH_CHECK(buffer.sizes() == shadows_[i].tensor.sizes() &&
                      buffer.scalar_type() == shadows_[i].tensor.scalar_type() &&
                      buffer.device() == at::Device(device_.torch_device()) &&
                      buffer.is_contiguous(),
                  "the buffer ", listed[i].name, " is another tensor than it was");
      buffers.push_back(buffer.detach());
    }
  });
  if (!status.ok()) return status;
  return buffers;
}

std::vector<BufferPath::Place> DeviceBuffers::PlacesOf(
    const std::vector<at::Tensor>& buffers) const {
  std::vector<BufferPath::Place> places;
  for (const at::Tensor& buffer : buffers) {
    places.push_back({static_cast<std::byte*>(buffer.mutable_data_ptr()), buffer.nbytes()});
  }
  return places;
}

absl::Status DeviceBuffers::Fetch() {
  if (tensors_.empty()) return absl::OkStatus();
  auto buffers = OfNetwork();
  if (!buffers.ok()) return buffers.status();
  fetched_ = listed_ = *std::move(buffers);
  return path_->Fetch(PlacesOf(fetched_));
}

absl::Status DeviceBuffers::Receive(bool push) {
  if (fetched_.empty()) return absl::OkStatus();
  absl::Status status =
      path_->Receive(Deadline(), [&](size_t k, absl::Span<const std::byte> values) {
        on_device_[k].assign(values.begin(), values.end());
        std::memcpy(session_->gradient(tensors_[k]).data(), values.data(), values.size());
      });
  fetched_.clear();
  for (size_t k = 0; k < tensors_.size() && push && status.ok(); ++k) {
    status = module_->PushFilled(tensors_[k]);
  }
  return status;
}

absl::Status DeviceBuffers::Bring() {
  if (tensors_.empty()) return absl::OkStatus();
  std::vector<at::Tensor> buffers = std::exchange(listed_, {});
  if (buffers.empty()) {
    auto listed = OfNetwork();
    if (!listed.ok()) return listed.status();
    buffers = *std::move(listed);
  }
  // Most are what they were, in a job with one worker all.
  std::vector<size_t> others;
  std::vector<at::Tensor> to;
  for (size_t k = 0; k < tensors_.size(); ++k) {
    const absl::Span<const std::byte> pulled = session_->parameter(tensors_[k]);
    std::vector<std::byte>& known = on_device_[k];
    const bool is_same = known.size() == pulled.size() &&
                         std::memcmp(known.data(), pulled.data(), known.size()) == 0;
    known.clear();  // what forward makes of it, until that has come to the host
    if (is_same) continue;
    others.push_back(k);
    to.push_back(buffers[k]);
  }
  if (others.empty()) return absl::OkStatus();
  return path_->Bring(PlacesOf(to), Deadline(), [&](size_t k, absl::Span<std::byte> values) {
    std::memcpy(values.data(), session_->parameter(tensors_[others[k]]).data(), values.size());
  });
}

}  // namespace parley
