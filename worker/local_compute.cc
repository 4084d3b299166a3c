#include "worker/local_compute.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/torch/torch_status.h"
#include "common/job/job_file.h"
#include "worker/batch_tensors.h"
#include "worker/bind_module.h"
#include "worker/loss.h"
#include "worker/microbatch_seed.h"

namespace parley {
namespace {

// What a device copies samples from while the host goes on. Where it has none of that the heap's
// does, with one more copy.
AllocateBatch BatchMemory(ComputeDevice* device) {
  if (device == nullptr) return nullptr;
  return [device](size_t bytes) -> std::shared_ptr<std::byte> {
    auto memory = device->AllocatePinned("samples", bytes);
    if (!memory.ok()) return nullptr;
    const auto kept = std::make_shared<DeviceBuffer>(*std::move(memory));
    return {kept, kept->data()};
  };
}

// A step's loss, to be read when its gradients have left: from a GPU it comes to the host on the
// way, so that reading it then waits for nothing.
at::Tensor OnItsWay(const at::Tensor& loss) {
  if (!loss.is_cuda()) return loss.detach();
  at::Tensor here = at::empty(loss.sizes(), loss.options().device(c10::kCPU).pinned_memory(true));
  return here.copy_(loss.detach(), /*non_blocking=*/true);
}

}  // namespace

LocalCompute::LocalCompute(const Parts& parts)
    : parts_(parts),
      loss_scale_(parts.job),
      graphs_(parts.job, parts.device != nullptr, parts.group != nullptr, parts.log),
      batches_(parts.job, parts.data, BatchMemory(parts.device)) {}

LocalCompute::~LocalCompute() {
  // Of a step that could not be ended. LibTorch asks the GPU when it frees what that copies to, and
  // for a GPU that has failed it would end the process, before the cause was told.
  static auto& never_freed = *new std::vector<decltype(losses_)>();
  if (parts_.device != nullptr && !losses_.empty()) never_freed.push_back(std::move(losses_));
}

void LocalCompute::Expect(const std::vector<StepPlan>& plans) {
  batches_.Expect(plans, brought_.has_value() ? &brought_->batch->draw : nullptr);
}

absl::Status LocalCompute::Attach() {
  auto binding = BindTensors([&network = parts_.network] { return network.Tensors(); }, parts_.job,
                             parts_.device, parts_.group);
  if (!binding.ok()) return binding.status();
  binding_ = *std::move(binding);
  return binding_->Attach(parts_.session, parts_.data.train->size(), parts_.data.test_samples());
}

at::Tensor LocalCompute::Forward(const at::Tensor& x) {
  at::Tensor outputs;
  {
    const AutocastScope scope(parts_.job.precision(), x.device().type());
    outputs = parts_.network.Forward(x);
  }
  return parts_.job.precision() == FLOAT32 ? outputs : outputs.to(c10::kFloat);
}

absl::StatusOr<TrainingBinding::Samples> LocalCompute::ToNetwork(const DataSource& source,
                                                                 size_t samples, Batch& batch) {
  TrainingBinding::Samples here;
  absl::Status status = CatchTorch("the samples", [&] {
    here = {BatchTensor(source.x(), samples, batch.x.span()),
            BatchTensor(source.y(), samples, batch.y.span())};
    here.pinned = batch.x.is_special() && batch.y.is_special();
  });
  if (!status.ok()) return status;
  return binding_->ToNetwork(here);
}

absl::Status LocalCompute::BringAhead() {
  if (parts_.device == nullptr || brought_.has_value()) return absl::OkStatus();
  std::unique_ptr<Batch> batch = batches_.TakePrepared();
  if (batch == nullptr) return absl::OkStatus();
  auto there = ToNetwork(*parts_.data.train, batch->draw.samples.size(), *batch);
  if (!there.ok()) return there.status();
  brought_ = {std::move(batch), *std::move(there)};
  return absl::OkStatus();
}

absl::Status LocalCompute::DropAhead() {
  if (!brought_.has_value()) return absl::OkStatus();
  absl::Status status = binding_->AwaitSamples();
  if (status.ok()) batches_.Recycle(std::move(brought_->batch));
  brought_.reset();
  return status;
}

absl::StatusOr<Verdict> LocalCompute::Step(const StepPlan& plan) {
  if (parts_.device != nullptr) parts_.device->BeginStep();
  binding_->MultiplyGradients(1 / loss_scale_.value());
  parts_.metrics.SetLossScale(loss_scale_.value());
  const auto microbatches = batches_.Cut(plan);
  for (size_t i = 0; i < microbatches.size(); ++i) {
    absl::Status status = Microbatch(plan, i, microbatches[i], microbatches.size());
    if (!status.ok()) return status;
  }
  double loss_sum = 0;
  absl::Status status = CatchTorch(absl::StrCat("the loss of step ", plan.step), [&] {
    for (const auto& [loss, samples] : losses_) {
      loss_sum += loss.item().toDouble() * static_cast<double>(samples);
    }
  });
  if (!status.ok()) return status;
  losses_.clear();
  auto verdict = binding_->Complete(loss_sum);
  if (!verdict.ok()) return verdict;
  if (status = loss_scale_.Decided(*verdict); !status.ok()) return status;
  return verdict;
}

absl::Status LocalCompute::TakeSamples(const StepPlan& plan, const std::vector<uint64_t>& samples,
                                       std::unique_ptr<Batch>& batch,
                                       std::optional<TrainingBinding::Samples>& there) {
  const PhaseTimer timer(parts_.metrics, StepPhase::kData);
  if (brought_.has_value() && brought_->batch->draw == Draw{samples, plan.data_epoch}) {
    batch = std::move(brought_->batch);
    there = std::move(brought_->there);
    brought_.reset();
    return absl::OkStatus();
  }
  if (absl::Status status = DropAhead(); !status.ok()) return status;
  auto taken = batches_.Take(plan, samples);
  if (!taken.ok()) return taken.status();
  batch = *std::move(taken);
  auto brought = ToNetwork(*parts_.data.train, samples.size(), *batch);
  if (!brought.ok()) return brought.status();
  there = *std::move(brought);
  return absl::OkStatus();
}

absl::StatusOr<at::Tensor> LocalCompute::LossOfMicrobatch(const StepPlan& plan, size_t microbatch,
                                                          const TrainingBinding::Samples& there,
                                                          size_t samples) {
  // It waits for parameters that are on their way: that is the time of the pull.
  const double pulled = parts_.session.traffic().pull_seconds;
  const PhaseTimer timer(parts_.metrics, StepPhase::kForward);
  const StreamWork work(parts_.device, StreamId::kCompute, "forward");
  at::Tensor loss;
  absl::Status status = CatchTorch(absl::StrCat("forward of step ", plan.step), [&] {
    // Dropout leaves out the same elements whenever this microbatch is computed.
    parts_.network.Seed(MicrobatchSeed(parts_.job, plan, microbatch));
    loss = ComputeLoss(LossOf(parts_.job), Forward(there.x), there.y);
    losses_.emplace_back(OnItsWay(loss), samples);
    // The mean over the step's samples is the microbatches' means, each times its share of them.
    double factor = loss_scale_.value();
    if (samples != plan.samples.size()) {
      factor *= static_cast<double>(samples) / static_cast<double>(plan.samples.size());
    }
    if (factor != 1) loss = loss.mul(factor);
  });
  if (!status.ok()) return status;
  parts_.metrics.Spent(StepPhase::kForward,
                       -absl::Seconds(parts_.session.traffic().pull_seconds - pulled));
  return loss;
}

absl::StatusOr<bool> LocalCompute::StepAsGraph(const StepPlan& plan,
                                               const TrainingBinding::Samples& there) {
  const double pulled = parts_.session.traffic().pull_seconds;
  const PhaseTimer timer(parts_.metrics, StepPhase::kForward);
  const std::string what = absl::StrCat("step ", plan.step, " as a graph");
  absl::Status status = CatchTorch(what, [&] {
    const c10::NoGradGuard no_grad;
    if (graph_samples_.has_value()) {
      graph_samples_->x.copy_(there.x);
      graph_samples_->y.copy_(there.y);
    } else {
      graph_samples_ = {there.x.clone(), there.y.clone()};
    }
    parts_.network.SeedAtOnce(MicrobatchSeed(parts_.job, plan, 0));
  });
  if (!status.ok()) return status;
  const auto compute_loss = [&] {
    return ComputeLoss(LossOf(parts_.job), Forward(graph_samples_->x), graph_samples_->y);
  };
  std::string why_not;
  const auto loss = binding_->RunGraph(compute_loss, why_not);
  parts_.metrics.Spent(StepPhase::kForward,
                       -absl::Seconds(parts_.session.traffic().pull_seconds - pulled));
  if (!loss.ok()) return loss.status();
  if (!loss->defined()) {
    graphs_.CannotRecord(why_not);
    graph_samples_.reset();
    return false;
  }
  graphs_.Computed(plan.step);
  status = CatchTorch(what, [&] {
    const c10::NoGradGuard no_grad;
    losses_.emplace_back(OnItsWay(*loss), plan.samples.size());
  });
  if (!status.ok()) return status;
  return true;
}

absl::Status LocalCompute::Microbatch(const StepPlan& plan, size_t microbatch,
                                      const std::vector<uint64_t>& samples, size_t microbatches) {
  std::unique_ptr<Batch> batch;
  std::optional<TrainingBinding::Samples> there;
  if (absl::Status status = TakeSamples(plan, samples, batch, there); !status.ok()) return status;
  bool as_graph = graphs_.Choose(plan.step, microbatches, samples.size());
  if (as_graph) {
    const absl::StatusOr<bool> computed = StepAsGraph(plan, *there);
    if (!computed.ok()) return computed.status();
    as_graph = *computed;
  }
  at::Tensor loss;
  if (!as_graph) {
    auto computed = LossOfMicrobatch(plan, microbatch, *there, samples.size());
    if (computed.ok()) {
      loss = *std::move(computed);
    } else if (!binding_->StepIsLost()) {
      return computed.status();
    }
  }
  there.reset();
  const bool last = microbatch + 1 == microbatches;
  const PhaseTimer timer(parts_.metrics, StepPhase::kBackward);
  if (loss.defined()) {
    absl::Status status = binding_->Backward(loss, last);
    if (!status.ok() && !binding_->StepIsLost()) return status;
    loss = at::Tensor();  // autograd's graph goes while a device is still at it
  }
  // Long ago, by now.
  if (absl::Status status = binding_->AwaitSamples(); !status.ok()) return status;
  if (last) {
    if (absl::Status status = BringAhead(); !status.ok()) return status;
    // The losses are read next.
    if (absl::Status status = binding_->Settle(); !status.ok()) return status;
  }
  batches_.Recycle(std::move(batch));
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Session::PendingEvaluation>> LocalCompute::PullEvaluation() {
  if (parts_.device != nullptr) parts_.device->EndStep();
  return binding_->PullEvaluation();
}

absl::StatusOr<std::optional<Evaluation>> LocalCompute::Evaluate(
    const Session::PendingEvaluation& due) {
  Evaluation evaluation;
  EvaluationBatches data(parts_.job, parts_.data, due.samples, due.epoch);
  absl::Status status = CatchTorch("evaluation", [&] { parts_.network.SetTraining(false); });
  for (const Draw& draw : data.draws()) {
    const size_t samples = draw.samples.size();
    auto batch = data.Take(draw);
    if (!batch.ok()) return batch.status();
    const auto there = ToNetwork(*parts_.data.test, samples, **batch);
    if (!there.ok()) return there.status();
    const std::string what = absl::StrCat("evaluation of version ", due.version);
    at::Tensor outputs;
    status.Update(CatchTorch(what, [&] {
      const c10::NoGradGuard no_grad;
      outputs = Forward(there->x);
    }));
    status.Update(binding_->Settle());
    if (!status.ok()) return status;
    status = CatchTorch(what, [&] {
      const c10::NoGradGuard no_grad;
      AddToEvaluation(LossOf(parts_.job), outputs, there->y, evaluation);
    });
    if (!status.ok()) return status;
    data.Recycle(*std::move(batch));
  }
  status.Update(CatchTorch("training", [&] { parts_.network.SetTraining(true); }));
  if (!status.ok()) return status;
  return evaluation;
}

}  // namespace parley
