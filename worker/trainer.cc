#include "worker/trainer.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/torch/torch_status.h"
#include "common/seed.h"
#include "worker/batch_tensors.h"
#include "worker/loss.h"
#include "worker/threads.h"

namespace parley {
namespace {

size_t PrefetchedBatches(const JobConfig& job) {
  return job.data().has_prefetch() ? job.data().prefetch() : 2;
}

size_t EvaluationBatch(const JobConfig& job) {
  return job.data().evaluation_batch() > 0 ? job.data().evaluation_batch() : 500;
}

}  // namespace

std::vector<std::vector<uint64_t>> Microbatches(const std::vector<uint64_t>& samples,
                                                size_t batch) {
  std::vector<std::vector<uint64_t>> microbatches;
  for (size_t begin = 0; begin < samples.size(); begin += batch) {
    const size_t end = std::min(samples.size(), begin + batch);
    microbatches.emplace_back(samples.begin() + static_cast<std::ptrdiff_t>(begin),
                              samples.begin() + static_cast<std::ptrdiff_t>(end));
  }
  return microbatches;
}

Trainer::Trainer(const Parts& parts)
    : parts_(parts),
      batch_(std::max<size_t>(1, parts.job.data().batch())),
      training_data_(parts.data.train, PrefetchedBatches(parts.job)) {}

absl::Status Trainer::Run() {
  absl::Status status = Train();
  binding_.reset();
  if (status.ok()) return status;
  // Tells the others, unless they know already, and learns which cause counts.
  const FirstCause cause =
      parts_.session.Fail(std::string(status.message()), absl::IsCancelled(status));
  return absl::Status(status.code(), cause.text());
}

absl::Status Trainer::Train() {
  const int threads = ComputeThreads(parts_.job, UsableCores());
  at::set_num_threads(threads);
  auto binding = ModuleBinding::Create([this] { return parts_.network.Tensors(); });
  if (!binding.ok()) return binding.status();
  binding_ = *std::move(binding);
  absl::Status status =
      binding_->Attach(parts_.session, parts_.data.train->size(), parts_.data.test_samples());
  if (!status.ok()) return status;
  job_epoch_ = parts_.session.epochs().job;
  parts_.metrics.SetEpochs(parts_.session.epochs());
  parts_.log.Info("training", {{"from_step", absl::StrCat(parts_.session.version() + 1)},
                               {"tensors", absl::StrCat(binding_->specs().size())},
                               {"samples", absl::StrCat(parts_.data.train->size())},
                               {"threads", absl::StrCat(threads)}});

  const size_t ahead =
      1 + PrefetchedBatches(parts_.job) / std::max<size_t>(1, parts_.job.accumulate());
  while (true) {
    if (status = EvaluateWhatIsDue(); !status.ok()) return status;
    HasGoneBack();  // in the end, or in an evaluation
    std::vector<Draw> expected;
    for (const StepPlan& plan : parts_.session.Ahead(ahead)) {
      for (auto& samples : Microbatches(plan.samples, batch_))
        expected.push_back({std::move(samples), plan.data_epoch});
    }
    training_data_.Expect(std::move(expected));
    std::optional<StepPlan> plan = parts_.session.NextStep();
    if (!plan.has_value()) {
      const absl::StatusOr<bool> finished = parts_.session.Finish(parts_.metrics.seconds());
      if (!finished.ok() || *finished) return finished.status();
      if (status = binding_->Pull(); !status.ok()) return status;
      continue;
    }
    const std::string preemption = parts_.preemption ? parts_.preemption() : "";
    if (!preemption.empty()) return absl::CancelledError("preempted by " + preemption);
    if (status = Step(*plan); !status.ok()) return status;
  }
}

bool Trainer::HasGoneBack() {
  const Session::Epochs epochs = parts_.session.epochs();
  parts_.metrics.SetEpochs(epochs);
  if (std::exchange(job_epoch_, epochs.job) == epochs.job) return false;
  parts_.log.Warning("the job went back to a checkpoint",
                     {{"job_epoch", absl::StrCat(job_epoch_)},
                      {"version", absl::StrCat(parts_.session.version())}});
  return true;
}

absl::Status Trainer::Step(const StepPlan& plan) {
  double loss_sum = 0;
  const auto microbatches = Microbatches(plan.samples, batch_);
  for (size_t i = 0; i < microbatches.size(); ++i) {
    absl::Status status =
        Microbatch(plan, i, microbatches[i], i + 1 == microbatches.size(), loss_sum);
    if (!status.ok()) return status;
  }
  absl::StatusOr<Verdict> verdict = binding_->Complete(loss_sum);
  if (!verdict.ok()) return verdict.status();
  if (absl::Status status = binding_->PullAhead(); !status.ok()) return status;
  if (HasGoneBack()) return absl::OkStatus();
  if (verdict->outcome() == Verdict::STALE) {
    parts_.log.Warning(
        "the job went on without this step of this worker, which was late or cut off",
        {{"step", absl::StrCat(plan.step)}, {"version", absl::StrCat(parts_.session.version())}});
    return absl::OkStatus();
  }
  parts_.metrics.StepDone(*verdict, plan.samples.size(), parts_.session.traffic());
  return absl::OkStatus();
}

absl::Status Trainer::Microbatch(const StepPlan& plan, uint64_t microbatch,
                                 const std::vector<uint64_t>& samples, bool last,
                                 double& loss_sum) {
  absl::StatusOr<std::unique_ptr<Batch>> batch;
  {
    const PhaseTimer timer(parts_.metrics, StepPhase::kData);
    batch = training_data_.Take({samples, plan.data_epoch});
    if (!batch.ok()) return batch.status();
  }
  at::Tensor loss;
  {
    // It waits for parameters that are on their way: that is the time of the pull.
    const double pulled = parts_.session.traffic().pull_seconds;
    const PhaseTimer timer(parts_.metrics, StepPhase::kForward);
    absl::Status status = CatchTorch(absl::StrCat("forward of step ", plan.step), [&] {
      // Dropout leaves out the same elements whenever this microbatch is computed.
      parts_.network.Seed(
          DeriveSeed(parts_.job.seed(), "step",
                     {plan.data_epoch, plan.step, microbatch, parts_.session.ordinal()}));
      const at::Tensor x = BatchTensor(parts_.data.train->x(), samples.size(), (*batch)->x.span());
      const at::Tensor y = BatchTensor(parts_.data.train->y(), samples.size(), (*batch)->y.span());
      loss = ComputeLoss(LossOf(parts_.job), parts_.network.Forward(x), y);
      loss_sum += loss.item().toDouble() * static_cast<double>(samples.size());
      // The mean over the step's samples is the microbatches' means, each times its share of them.
      if (samples.size() != plan.samples.size()) {
        loss = loss.mul(static_cast<double>(samples.size()) /
                        static_cast<double>(plan.samples.size()));
      }
    });
    if (!status.ok()) return status;
    parts_.metrics.Spent(StepPhase::kForward,
                         -absl::Seconds(parts_.session.traffic().pull_seconds - pulled));
  }
  {
    const PhaseTimer timer(parts_.metrics, StepPhase::kBackward);
    if (absl::Status status = binding_->Backward(loss, last); !status.ok()) return status;
  }
  training_data_.Recycle(*std::move(batch));
  return absl::OkStatus();
}

absl::Status Trainer::EvaluateWhatIsDue() {
  while (true) {
    const auto due = binding_->PullEvaluation();
    if (!due.ok()) return due.status();
    if (!due->has_value()) return absl::OkStatus();
    if (absl::Status status = Evaluate(**due); !status.ok()) return status;
    if (absl::Status status = binding_->Pull(); !status.ok()) return status;
  }
}

absl::Status Trainer::Evaluate(const Session::PendingEvaluation& due) {
  Evaluation evaluation;
  evaluation.set_version(due.version);
  evaluation.set_epoch(due.epoch);
  {
    const PhaseTimer timer(parts_.metrics, StepPhase::kEvaluate);
    std::vector<uint64_t> all;
    for (uint64_t sample = due.samples.begin(); sample < due.samples.end(); ++sample) {
      all.push_back(sample);
    }
    const auto batches = Microbatches(all, EvaluationBatch(parts_.job));
    Prefetcher data(parts_.data.test, PrefetchedBatches(parts_.job));
    std::vector<Draw> draws;
    for (const auto& samples : batches) draws.push_back({samples, due.epoch});
    data.Expect(draws);
    absl::Status status = CatchTorch("evaluation", [&] { parts_.network.SetTraining(false); });
    for (const Draw& draw : draws) {
      const std::vector<uint64_t>& samples = draw.samples;
      auto batch = data.Take(draw);
      if (!batch.ok()) return batch.status();
      status.Update(CatchTorch(absl::StrCat("evaluation of version ", due.version), [&] {
        const c10::NoGradGuard no_grad;
        const at::Tensor x = BatchTensor(parts_.data.test->x(), samples.size(), (*batch)->x.span());
        const at::Tensor y = BatchTensor(parts_.data.test->y(), samples.size(), (*batch)->y.span());
        AddToEvaluation(LossOf(parts_.job), parts_.network.Forward(x), y, evaluation);
      }));
      if (!status.ok()) return status;
      data.Recycle(*std::move(batch));
    }
    status.Update(CatchTorch("training", [&] { parts_.network.SetTraining(true); }));
    if (!status.ok()) return status;
  }
  parts_.metrics.EvaluationDone();
  parts_.log.Info("evaluated", {{"epoch", absl::StrCat(due.epoch)},
                                {"version", absl::StrCat(due.version)},
                                {"samples", absl::StrCat(evaluation.samples())},
                                {"correct", absl::StrCat(evaluation.correct())},
                                {"loss_sum", absl::StrCat(evaluation.loss_sum())}});
  return parts_.session.ReportEvaluation(evaluation);
}

}  // namespace parley
