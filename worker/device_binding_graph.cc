// DeviceBinding: steps as a graph of the device.
#include <c10/core/GradMode.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/torch/torch_status.h"
#include "worker/device_binding.h"

namespace parley {

std::string DeviceBinding::MovedTensor() const {
  const std::vector<NamedTensor> listed = network_();
  for (size_t i = 0; i < listed.size(); ++i) {
    if (listed[i].tensor.const_data_ptr() != graph_tensors_[i].const_data_ptr()) {
      return listed[i].name;
    }
  }
  return "";
}

absl::Status DeviceBinding::PutBackTensors() {
  return CatchTorch("the network's tensors", [&] {
    const c10::NoGradGuard no_grad;
    const std::vector<NamedTensor> listed = network_();
    for (size_t i = 0; i < listed.size(); ++i) {
      at::Tensor tensor = listed[i].tensor;
      if (tensor.const_data_ptr() == graph_tensors_[i].const_data_ptr()) continue;
      tensor.set_data(graph_tensors_[i]);
    }
  });
}

absl::StatusOr<at::Tensor> DeviceBinding::RunGraph(absl::FunctionRef<at::Tensor()> loss,
                                                   std::string& why_not) {
  if (!pulled_) return PullComesFirst();
  if (absl::Status status = values_->BringRemaining(); !status.ok()) return status;
  const bool records = graph_ == nullptr;
  // A graph goes on with the tensors of its recording, whatever the network has later.
  std::string moved;
  absl::Status status = CatchTorch("the network's tensors", [&] {
    if (!records) {
      moved = MovedTensor();
      return;
    }
    graph_tensors_.clear();
    for (const NamedTensor& named : network_()) {
      graph_tensors_.push_back(named.tensor.detach());  // keeps the memory, too
    }
  });
  if (!status.ok()) return status;
  if (records) {
    auto graph = device_.MakeGraph();
    if (!graph.ok()) return graph.status();
    graph_ = *std::move(graph);
  }
  if (!moved.empty()) {
    status = absl::UnavailableError(absl::StrCat("the network gives ", moved, " other memory"));
  } else {
    {
      absl::MutexLock lock(&mu_);
      records_ = true;
    }
    const StreamWork work(&device_, StreamId::kCompute, "graph");
    status = graph_->Run([&] {
      at::Tensor computed = loss();
      computed.backward();
      moved = MovedTensor();
      TORCH_CHECK(moved.empty(), "forward gives ", moved, " other memory");
      graph_loss_ = computed.detach();
      graph_gradients_.assign(tensors_.size(), at::Tensor());
      for (size_t i = 0; i < tensors_.size(); ++i) {
        if (!IsTrained(i)) continue;
        at::Tensor gradient = std::exchange(tensors_[i].mutable_grad(), at::Tensor());
        if (gradient.defined()) graph_gradients_[i] = gradient.contiguous();
      }
    });
    absl::MutexLock lock(&mu_);
    records_ = false;
  }
  if (!status.ok()) {
    graph_ = nullptr;
    graph_gradients_.clear();
    graph_loss_ = at::Tensor();
    DropDeviceGradients();
    if (!absl::IsUnavailable(status)) return status;
    why_not = std::string(status.message());
    status = records ? PutBackTensors() : absl::OkStatus();
    graph_tensors_.clear();
    if (!status.ok()) return status;
    return at::Tensor();
  }
  // Behind the graph, so that buffers are those after its forward.
  if (status = BeginSending(); !status.ok()) return status;
  BeginBackward(/*last=*/true);
  {
    absl::MutexLock lock(&mu_);
    gradients_ = graph_gradients_;
  }
  if (status = SendWhatIsLeft(); !status.ok()) return status;
  return graph_loss_;
}

}  // namespace parley
