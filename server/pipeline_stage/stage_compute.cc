#include "server/pipeline_stage/stage_compute.h"

#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "client/torch/torch_status.h"
#include "common/clock/steady_now.h"
#include "common/job/job_file.h"
#include "server/pipeline_stage/device_stage_binding.h"
#include "server/pipeline_stage/host_stage_binding.h"
#include "worker/loss.h"
#include "worker/models/layers.h"

namespace parley {
namespace {

// Of each input; none where the first one has none, whom others wait for.
LayerFlow GradientsOf(const LayerFlow& inputs) {
  LayerFlow gradients;
  for (const at::Tensor& input : inputs) {
    const at::Tensor gradient = input.grad();
    if (!gradient.defined() && gradients.empty()) return {};
    gradients.push_back(gradient.defined() ? gradient : at::zeros_like(input));
  }
  return gradients;
}

std::string In(const char* what, uint32_t part, uint32_t microbatch) {
  return absl::StrCat(what, " of microbatch ", microbatch, " in part ", part, " of the model");
}

// Adds the time of its own life.
class BusyTime {
 public:
  explicit BusyTime(absl::Duration& sum) : sum_(sum), begin_(SteadyNow()) {}
  ~BusyTime() { sum_ += SteadyNow() - begin_; }
  BusyTime(const BusyTime&) = delete;
  BusyTime& operator=(const BusyTime&) = delete;

 private:
  absl::Duration& sum_;
  const absl::Time begin_;
};

}  // namespace

uint64_t BytesOf(const LayerFlow& flow) {
  uint64_t bytes = 0;
  for (const at::Tensor& tensor : flow) bytes += tensor.nbytes();
  return bytes;
}

absl::StatusOr<std::unique_ptr<StageCompute>> StageCompute::Make(const JobConfig& job,
                                                                 const PipelineModel& model,
                                                                 uint32_t stage,
                                                                 ComputeDevice* device) {
  std::unique_ptr<StageCompute> compute = absl::WrapUnique(new StageCompute(job, model, device));
  compute->parts_ = PartsOfStage(job, stage);
  if (absl::Status made = compute->MakeParts(stage); !made.ok()) return made;
  return compute;
}

std::vector<NamedTensor> StageCompute::Tensors() const {
  std::vector<NamedTensor> parameters, buffers;
  for (const auto& [part, network] : networks_) {
    for (NamedTensor& tensor : network->Tensors()) {
      (tensor.buffer ? buffers : parameters).push_back(std::move(tensor));
    }
  }
  parameters.insert(parameters.end(), std::make_move_iterator(buffers.begin()),
                    std::make_move_iterator(buffers.end()));
  return WithoutRepetitions(std::move(parameters));
}

absl::Status StageCompute::MakeParts(uint32_t stage) {
  std::vector<NamedTensor> parts_tensors;
  absl::Status made = CatchTorch(absl::StrCat("making stage ", stage, " of the model"), [&] {
    // One for all parts: two that share a tensor have one.
    LayerSet tensors(job_.seed());
    for (const uint32_t part : parts_) {
      std::vector<NetworkLayer> layers;
      for (size_t i = model_.first_layers[part]; i < model_.end_of(part); ++i) {
        layers.push_back(model_.layers[i].make(tensors));
      }
      networks_[part] =
          std::make_unique<LayeredNetwork>(std::move(layers), model_.first_layers[part]);
    }
    parts_tensors = Tensors();
  });
  if (!made.ok()) return made;
  auto binding = device_ == nullptr ? HostStageBinding::Make(std::move(parts_tensors))
                                    : DeviceStageBinding::Make(std::move(parts_tensors), *device_,
                                                               StallTimeout(job_));
  if (!binding.ok()) return binding.status();
  binding_ = *std::move(binding);
  std::map<std::string, size_t> index;
  for (size_t i = 0; i < binding_->specs().size(); ++i) index[binding_->specs()[i].name()] = i;
  for (const auto& [part, network] : networks_) {
    for (const NamedTensor& tensor : network->Tensors()) {
      const auto found = index.find(tensor.name);
      if (tensor.buffer || found == index.end() || !tensor.tensor.requires_grad()) continue;
      trained_[part].push_back(found->second);
    }
  }
  return absl::OkStatus();
}

absl::Status StageCompute::Attach(Session& session, uint64_t training_samples,
                                  uint64_t test_samples) {
  return binding_->AttachPart(session, model_.tensors, training_samples, test_samples);
}

absl::Status StageCompute::Timed(const std::string& what, absl::FunctionRef<void()> compute) {
  const BusyTime busy(busy_);
  const StreamWork work(device_, StreamId::kCompute, what);
  return CatchTorch(what, [&] { compute(); });
}

absl::StatusOr<LayerFlow> StageCompute::FromHost(LayerFlow flow) {
  return binding_->FromHost(std::move(flow));
}

absl::StatusOr<LayerFlow> StageCompute::ToHost(LayerFlow flow) {
  const BusyTime busy(busy_);
  return binding_->ToHost(std::move(flow));
}

absl::StatusOr<LayerFlow> StageCompute::FromPeer(absl::Span<const PeerTensor> tensors) {
  return binding_->FromPeer(tensors);
}

absl::StatusOr<std::vector<PeerTensor>> StageCompute::ToPeer(LayerFlow flow) {
  const BusyTime busy(busy_);
  return binding_->ToPeer(std::move(flow));
}

void StageCompute::Begin() {
  if (device_ != nullptr) device_->BeginStep();
  busy_ = absl::ZeroDuration();  // that of a unit that was given up
  live_.clear();
  updated_.clear();
  binding_->DropGradients();
}

absl::StatusOr<StageCompute::Live*> StageCompute::Find(uint32_t part, uint32_t microbatch) {
  const auto found = live_.find({part, microbatch});
  if (found != live_.end()) return &found->second;
  return absl::InternalError(absl::StrCat(In("forward", part, microbatch), " is not kept here"));
}

LayerFlow StageCompute::Run(uint32_t part, Live& live) {
  std::optional<DeferredWeights::Scope> scope;
  if (live.deferred != nullptr) scope.emplace(*live.deferred);
  network(part).Seed(live.seed);
  LayerFlow outputs = network(part).Run(live.inputs);
  if (!is_last(part)) return outputs;
  const Target& target = live.target;
  at::Tensor loss = ComputeLoss(LossOf(job_), outputs.at(0), target.y);
  live.loss = loss.detach();
  // The mean over the step's samples is the microbatches' means, each times its share of them.
  if (target.samples != target.of) {
    loss = loss.mul(static_cast<double>(target.samples) / static_cast<double>(target.of));
  }
  return {loss};
}

absl::Status StageCompute::Forward(uint32_t part, uint32_t microbatch, const LayerFlow& inputs,
                                   uint64_t seed, const Target* target) {
  Live live;
  if (job_.pipeline().schedule() == ZERO_BUBBLE) {
    live.deferred = std::make_unique<DeferredWeights>();
  }
  live.seed = seed;
  if (target != nullptr) live.target = *target;
  const std::string what = In("forward", part, microbatch);
  absl::Status status = Timed(what, [&] {
    for (const at::Tensor& input : inputs) {
      at::Tensor& own = live.inputs.emplace_back(input.detach());
      // The data have no gradient, and tokens cannot have one.
      if (part > 0 && own.is_floating_point()) own.requires_grad_(true);
    }
    const bool keeps = !job_.pipeline().recompute();
    c10::AutoGradMode grad_mode(keeps);
    live.outputs = Run(part, live);
  });
  if (status.ok() && is_last(part)) status = ReadLoss(what, live);
  if (!status.ok()) return status;
  live_[{part, microbatch}] = std::move(live);
  return absl::OkStatus();
}

absl::Status StageCompute::Settle() {
  const BusyTime busy(busy_);
  return binding_->Settle();
}

absl::Status StageCompute::ReadLoss(const std::string& what, Live& live) {
  // LibTorch's copy waits without a deadline.
  if (absl::Status status = Settle(); !status.ok()) return status;
  return CatchTorch(what, [&] {
    live.loss_sum = live.loss.item().toDouble() * static_cast<double>(live.target.samples);
    live.loss.reset();
  });
}

LayerFlow StageCompute::TakeOutputs(uint32_t part, uint32_t microbatch) {
  LayerFlow outputs;
  const auto found = live_.find({part, microbatch});
  if (found == live_.end()) return outputs;
  for (const at::Tensor& output : found->second.outputs) outputs.push_back(output.detach());
  if (job_.pipeline().recompute()) found->second.outputs.clear();
  return outputs;
}

double StageCompute::loss_sum(uint32_t part, uint32_t microbatch) const {
  const auto found = live_.find({part, microbatch});
  return found == live_.end() ? 0 : found->second.loss_sum;
}

void StageCompute::RunAgain(uint32_t part, Live& live) {
  if (!job_.pipeline().recompute()) return;
  // A normalisation's statistics have had this microbatch.
  std::vector<std::pair<at::Tensor, at::Tensor>> kept;
  {
    const c10::NoGradGuard no_grad;
    for (const NamedTensor& tensor : network(part).Tensors()) {
      if (tensor.buffer) kept.emplace_back(tensor.tensor, tensor.tensor.clone());
    }
  }
  live.outputs = Run(part, live);
  const c10::NoGradGuard no_grad;
  // Through data(): the graph has them, does not use them, and refuses a later version of them.
  for (auto& [buffer, value] : kept) buffer.data().copy_(value);
}

void StageCompute::RunBackward(uint32_t part, Live& live, const LayerFlow& gradients) {
  RunAgain(part, live);
  TORCH_CHECK(is_last(part) || gradients.size() == live.outputs.size(), "part ", part, " gives ",
              live.outputs.size(), " tensors, and has got gradients of ", gradients.size());
  LayerFlow roots, of_roots;
  for (size_t i = 0; i < live.outputs.size(); ++i) {
    if (!live.outputs[i].requires_grad()) continue;
    roots.push_back(live.outputs[i]);
    if (!is_last(part)) of_roots.push_back(gradients[i]);
  }
  if (!roots.empty()) torch::autograd::backward(roots, of_roots);
  live.input_gradients = GradientsOf(live.inputs);
  live.outputs.clear();
}

absl::Status StageCompute::Gather(absl::FunctionRef<void()> backward) {
  const BusyTime busy(busy_);
  const StreamWork work(device_, StreamId::kCompute, "backward");
  return binding_->GatherGradients(backward);
}

absl::Status StageCompute::Backward(uint32_t part, uint32_t microbatch,
                                    const LayerFlow& gradients) {
  absl::Status status = InputGradient(part, microbatch, gradients);
  if (!status.ok()) return status;
  Live& live = live_[{part, microbatch}];
  live.weights_done = true;
  if (live.deferred == nullptr) return status;
  return Gather([&] {
    const c10::NoGradGuard no_grad;
    AddDeferred(live);
  });
}

absl::Status StageCompute::InputGradient(uint32_t part, uint32_t microbatch,
                                         const LayerFlow& gradients) {
  absl::StatusOr<Live*> live = Find(part, microbatch);
  if (!live.ok()) return live.status();
  return Gather([&] { RunBackward(part, **live, gradients); });
}

void StageCompute::AddDeferred(Live& live) {
  live.deferred->Compute([&](const at::Tensor& parameter, const at::Tensor& gradient) {
    binding_->AddGradient(parameter, gradient);
  });
}

absl::Status StageCompute::WeightGradient(uint32_t part, uint32_t microbatch) {
  absl::StatusOr<Live*> found = Find(part, microbatch);
  if (!found.ok()) return found.status();
  Live& live = **found;
  live.weights_done = true;
  absl::Status status;
  if (live.deferred != nullptr) {
    status = Gather([&] {
      const c10::NoGradGuard no_grad;
      AddDeferred(live);
    });
  }
  // Its inputs' gradients have gone already, or there are none.
  if (live.input_gradients.empty()) live_.erase({part, microbatch});
  return status;
}

LayerFlow StageCompute::TakeInputGradients(uint32_t part, uint32_t microbatch) {
  const auto found = live_.find({part, microbatch});
  if (found == live_.end()) return {};
  LayerFlow gradients = std::exchange(found->second.input_gradients, {});
  if (found->second.weights_done) live_.erase(found);
  return gradients;
}

absl::Status StageCompute::Update(uint32_t part) {
  updated_.insert(part);
  std::set<size_t> open;  // that another part of this stage has something to add to
  for (const auto& [other, tensors] : trained_) {
    if (updated_.count(other) == 0) open.insert(tensors.begin(), tensors.end());
  }
  std::vector<size_t> complete;
  for (const size_t tensor : trained_[part]) {
    if (open.count(tensor) == 0) complete.push_back(tensor);
  }
  // So that it counts as computing.
  if (absl::Status computed = Settle(); !computed.ok()) return computed;
  return binding_->PushGathered(complete);
}

absl::Status StageCompute::UpdateRest() {
  std::vector<size_t> all;
  for (const auto& [part, tensors] : trained_)
    all.insert(all.end(), tensors.begin(), tensors.end());
  return binding_->PushGathered(all);
}

absl::StatusOr<LayerFlow> StageCompute::Evaluate(uint32_t part, const LayerFlow& inputs,
                                                 const at::Tensor& y, Evaluation& evaluation) {
  LayerFlow outputs;
  if (device_ != nullptr) device_->EndStep();
  const std::string what = absl::StrCat("evaluation in part ", part);
  absl::Status status = Timed(what, [&] {
    const c10::NoGradGuard no_grad;
    network(part).SetTraining(false);
    outputs = network(part).Run(inputs);
    network(part).SetTraining(true);
  });
  if (status.ok() && is_last(part)) {
    status = Settle();
    if (!status.ok()) return status;
    status = Timed(what, [&] {
      const c10::NoGradGuard no_grad;
      AddToEvaluation(LossOf(job_), outputs.at(0), y, evaluation);
    });
  }
  if (!status.ok()) return status;
  return outputs;
}

uint64_t StageCompute::kept_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [key, live] : live_) {
    bytes += BytesOf(live.inputs) + BytesOf(live.outputs) + BytesOf(live.input_gradients);
  }
  return bytes;
}

}  // namespace parley
