#include "worker/pipeline_compute.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/pipeline/pipeline_message.h"
#include "server/pipeline_stage/schedule/job_schedule.h"

namespace parley {
namespace {

// A batch's x or y as it travels; `owner` keeps the bytes.
ValueTensor RowsOf(const SampleLayout& layout, size_t samples, absl::Span<std::byte> bytes,
                   const std::shared_ptr<Batch>& owner) {
  ValueTensor tensor;
  tensor.dtype = layout.dtype;
  tensor.shape = {static_cast<int64_t>(samples)};
  tensor.shape.insert(tensor.shape.end(), layout.shape.begin(), layout.shape.end());
  tensor.bytes = TensorBytes::Piece(bytes.data(), bytes.size());
  tensor.owner = owner;
  return tensor;
}

}  // namespace

PipelineCompute::PipelineCompute(const Parts& parts)
    : parts_(parts),
      batches_(parts.job, parts.data),
      bubble_(parts.served.Gauge(
          "parley_pipeline_bubble_ratio",
          "1 - time that the stages have computed / (stages * time of the step), in the last step "
          "of this worker's pipeline.")) {}

absl::Status PipelineCompute::Attach() {
  Session& session = parts_.session;
  absl::Status status = session.RegisterPart({}, parts_.model.tensors, parts_.data.train->size(),
                                             parts_.data.test_samples());
  if (status.ok() && session.must_initialize()) status = session.Initialize({});
  return status.ok() ? session.Pull() : status;
}

absl::Status PipelineCompute::Announce(const PipelineWork& work) {
  if (absl::Status begun = parts_.links.BeginUnit(); !begun.ok()) return begun;
  for (uint32_t stage = 0; stage < parts_.links.stages(); ++stage) {
    absl::Status sent =
        parts_.links.ToStage(stage, parts_.links.Key(PipelineKind::kWork, stage), ToTensors(work));
    if (!sent.ok()) return sent;
  }
  return absl::OkStatus();
}

absl::Status PipelineCompute::Feed(const Ends& ends, uint32_t microbatch, const SampleLayout& x,
                                   const SampleLayout& y, size_t samples,
                                   std::unique_ptr<Batch> batch) {
  PipelineLinks& links = parts_.links;
  const std::shared_ptr<Batch> shared = std::move(batch);
  absl::Status sent =
      links.ToStage(ends.first_stage, links.Key(PipelineKind::kActivation, 0, microbatch),
                    {RowsOf(x, samples, shared->x.span(), shared)});
  if (!sent.ok()) return sent;
  return links.ToStage(ends.last_stage, links.Key(PipelineKind::kTarget, last_part(), microbatch),
                       {RowsOf(y, samples, shared->y.span(), shared)});
}

absl::StatusOr<std::vector<double>> PipelineCompute::Result(uint32_t microbatch, size_t numbers) {
  const absl::StatusOr<ValuePtr> value =
      parts_.links.Await(parts_.links.Key(PipelineKind::kResult, last_part(), microbatch),
                         absl::StrCat("waiting for the stages' result of microbatch ", microbatch));
  if (!value.ok()) return value.status();
  if (*value == nullptr || (*value)->tensors.size() != 2) {
    return absl::InvalidArgumentError("the last stage has sent no result");
  }
  absl::StatusOr<std::vector<double>> result = DoublesOf((*value)->tensors[1]);
  if (result.ok() && result->size() != numbers) {
    return absl::InvalidArgumentError("the last stage's result is none of this release");
  }
  return result;
}

absl::StatusOr<absl::Duration> PipelineCompute::AwaitStages() {
  absl::Duration busy;
  for (uint32_t stage = 0; stage < parts_.links.stages(); ++stage) {
    const Member& member = parts_.links.pipeline().members[1 + stage];
    const absl::StatusOr<ValuePtr> value = parts_.links.Await(
        parts_.links.Key(PipelineKind::kDone, stage),
        absl::StrCat("waiting for stage ", member.ordinal(), " at ", member.address()));
    if (!value.ok()) return value.status();
    if (*value == nullptr || (*value)->tensors.size() != 2) {
      return absl::InvalidArgumentError("a stage has not said how long it has computed");
    }
    const absl::StatusOr<std::vector<double>> seconds = DoublesOf((*value)->tensors[1]);
    if (!seconds.ok()) return seconds.status();
    for (const double part : *seconds) busy += absl::Seconds(part);
  }
  return busy;
}

absl::StatusOr<Verdict> PipelineCompute::Step(const StepPlan& plan) {
  const absl::StatusOr<double> loss_sum = RunStep(plan);
  if (!loss_sum.ok()) return parts_.links.GiveUp(loss_sum.status());
  absl::StatusOr<Verdict> verdict = parts_.session.Complete(*loss_sum);
  // Each stage's part was complete: nobody needs anything of this step any more.
  if (verdict.ok() && verdict->outcome() != Verdict::STALE) parts_.links.EndUnit();
  return verdict;
}

absl::StatusOr<double> PipelineCompute::RunStep(const StepPlan& plan) {
  const auto microbatches = batches_.Cut(plan);
  const auto count = static_cast<uint32_t>(microbatches.size());
  absl::StatusOr<Schedule> schedule = ScheduleOf(parts_.job, std::max(1U, count));
  if (!schedule.ok()) return schedule.status();
  const absl::Time begin = absl::Now();
  absl::Status status = Announce({PipelineWork::Kind::kStep, plan.step, count});
  if (!status.ok()) return status;
  for (uint32_t k = 0; k < count; ++k) {
    absl::StatusOr<std::unique_ptr<Batch>> batch;
    {
      const PhaseTimer timer(parts_.metrics, StepPhase::kData);
      batch = batches_.Take(plan, microbatches[k]);
    }
    if (!batch.ok()) return batch.status();
    const Ends ends = {StageOf(*schedule, 0, k), StageOf(*schedule, last_part(), k)};
    const PhaseTimer timer(parts_.metrics, StepPhase::kPush);
    status = Feed(ends, k, parts_.data.train->x(), parts_.data.train->y(), microbatches[k].size(),
                  *std::move(batch));
    if (!status.ok()) return status;
  }
  const PhaseTimer timer(parts_.metrics, StepPhase::kForward);  // of all the pipeline
  double loss_sum = 0;
  for (uint32_t k = 0; k < count; ++k) {
    const absl::StatusOr<std::vector<double>> loss = Result(k, 1);
    if (!loss.ok()) return loss.status();
    loss_sum += (*loss)[0];
  }
  const absl::StatusOr<absl::Duration> busy = AwaitStages();
  if (!busy.ok()) return busy.status();
  const double whole =
      parts_.links.stages() * std::max(1e-9, absl::ToDoubleSeconds(absl::Now() - begin));
  bubble_.Set(std::max(0.0, 1 - absl::ToDoubleSeconds(*busy) / whole));
  return loss_sum;
}

absl::StatusOr<std::optional<Evaluation>> PipelineCompute::Evaluate(
    const Session::PendingEvaluation& due) {
  const absl::StatusOr<Evaluation> evaluation = RunEvaluation(due);
  if (evaluation.ok()) return *evaluation;
  const absl::StatusOr<Verdict> given_up = parts_.links.GiveUp(evaluation.status());
  if (!given_up.ok()) return given_up.status();
  return std::nullopt;
}

absl::StatusOr<Evaluation> PipelineCompute::RunEvaluation(const Session::PendingEvaluation& due) {
  EvaluationBatches batches(parts_.job, parts_.data, due.samples, due.epoch);
  const auto count = static_cast<uint32_t>(batches.draws().size());
  absl::Status status = Announce({PipelineWork::Kind::kEvaluation, due.version, count});
  if (!status.ok()) return status;
  const Ends ends = {0, last_part() % parts_.links.stages()};
  Evaluation evaluation;
  uint32_t fed = 0;
  for (uint32_t k = 0; k < count; ++k) {
    // So many at a time as keep all stages at work.
    for (; fed < std::min(count, k + 2 * parts_.links.stages()); ++fed) {
      const Draw& draw = batches.draws()[fed];
      absl::StatusOr<std::unique_ptr<Batch>> batch = batches.Take(draw);
      if (!batch.ok()) return batch.status();
      status = Feed(ends, fed, parts_.data.test->x(), parts_.data.test->y(), draw.samples.size(),
                    *std::move(batch));
      if (!status.ok()) return status;
    }
    const absl::StatusOr<std::vector<double>> result = Result(k, 6);
    if (!result.ok()) return result.status();
    evaluation.set_samples(evaluation.samples() + static_cast<uint64_t>((*result)[0]));
    evaluation.set_loss_sum(evaluation.loss_sum() + (*result)[1]);
    evaluation.set_correct(evaluation.correct() + static_cast<uint64_t>((*result)[2]));
    evaluation.set_correct_top5(evaluation.correct_top5() + static_cast<uint64_t>((*result)[3]));
    evaluation.set_classes((*result)[4] != 0);
    evaluation.set_tokens((*result)[5] != 0);
  }
  return evaluation;
}

}  // namespace parley
