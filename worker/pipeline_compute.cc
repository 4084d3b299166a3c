#include "worker/pipeline_compute.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/pipeline/pipeline_message.h"
#include "common/clock/steady_now.h"

namespace parley {
namespace {

// Microbatches of steps that overlap, before the pipeline comes to rest: a schedule has an end.
constexpr uint32_t kMostOverlapping = 2048;

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

absl::StatusOr<absl::Duration> PipelineCompute::AwaitStages(size_t step) {
  absl::Duration busy;
  for (uint32_t stage = 0; stage < parts_.links.stages(); ++stage) {
    const Member& member = parts_.links.pipeline().members[1 + stage];
    const absl::StatusOr<ValuePtr> value = parts_.links.Await(
        parts_.links.Key(PipelineKind::kDone, stage, static_cast<uint32_t>(step)),
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

void PipelineCompute::Expect(const std::vector<StepPlan>& plans) {
  std::vector<StepPlan> left;  // that the stages have no data of
  for (const StepPlan& plan : plans) {
    const bool fed = stretch_.has_value() && stretch_->fed > 0 &&
                     plan.step <= stretch_->plans[stretch_->fed - 1].step;
    if (!fed) left.push_back(plan);
  }
  batches_.Expect(left);
}

PipelineCompute::Stretch PipelineCompute::StretchFrom(const StepPlan& plan) const {
  Stretch stretch;
  stretch.of_a_step = std::max<uint32_t>(1, static_cast<uint32_t>(batches_.Cut(plan).size()));
  stretch.plans = {plan};
  if (!DelayOf(parts_.job).has_value() || plan.samples.empty()) return stretch;
  // Behind a data epoch there is an evaluation, which has the pipeline to itself.
  for (StepPlan& next : parts_.session.Ahead(std::max(1U, kMostOverlapping / stretch.of_a_step))) {
    if (next.step == plan.step) continue;
    const size_t microbatches = batches_.Cut(next).size();
    if (stretch.plans.back().ends_epoch || microbatches == 0 || microbatches > stretch.of_a_step) {
      break;
    }
    stretch.plans.push_back(std::move(next));
    if (microbatches < stretch.of_a_step) break;
  }
  return stretch;
}

absl::Status PipelineCompute::Begin(const StepPlan& plan) {
  Stretch stretch = StretchFrom(plan);
  const auto steps = static_cast<uint32_t>(stretch.plans.size());
  const auto last = static_cast<uint32_t>(batches_.Cut(stretch.plans.back()).size());
  const uint32_t count = (steps - 1) * stretch.of_a_step + last;
  if (count > 0) {
    const absl::StatusOr<Schedule> schedule = ScheduleOf(parts_.job, count);
    if (!schedule.ok()) return schedule.status();
    stretch.places.emplace(*schedule);
  }
  absl::Status status = Announce({PipelineWork::Kind::kStep, plan.step, count, steps});
  if (!status.ok()) return status;
  stretch.begun = SteadyNow();  // the first time, Announce has connected with all of them
  stretch.job_epoch = parts_.session.epochs().job;
  stretch.composition = parts_.links.pipeline().composition;
  stretch_ = std::move(stretch);
  return absl::OkStatus();
}

absl::StatusOr<Verdict> PipelineCompute::Step(const StepPlan& plan) {
  // Between two steps the session can find out that the job goes on in another way.
  if (stretch_.has_value() && (stretch_->job_epoch != parts_.session.epochs().job ||
                               stretch_->composition != parts_.session.pipeline().composition)) {
    stretch_.reset();
  }
  const absl::StatusOr<double> loss_sum = RunStep(plan);
  if (!loss_sum.ok()) {
    stretch_.reset();
    return parts_.links.GiveUp(loss_sum.status());
  }
  absl::StatusOr<Verdict> verdict = parts_.session.Complete(*loss_sum);
  if (!verdict.ok() || verdict->outcome() == Verdict::STALE) {
    stretch_.reset();
  } else if (++stretch_->next == stretch_->plans.size()) {
    // Each stage's part was complete: nobody needs anything of these steps any more.
    parts_.links.EndUnit();
    stretch_.reset();
  }
  return verdict;
}

absl::Status PipelineCompute::FeedStep(size_t step) {
  const StepPlan& plan = stretch_->plans[step];
  const auto microbatches = batches_.Cut(plan);
  for (size_t i = 0; i < microbatches.size(); ++i) {
    const auto k = static_cast<uint32_t>(step * stretch_->of_a_step + i);
    absl::StatusOr<std::unique_ptr<Batch>> batch;
    {
      const PhaseTimer timer(parts_.metrics, StepPhase::kData);
      batch = batches_.Take(plan, microbatches[i]);
    }
    if (!batch.ok()) return batch.status();
    const Ends ends = {stretch_->places->StageOf(0, k), stretch_->places->StageOf(last_part(), k)};
    const PhaseTimer timer(parts_.metrics, StepPhase::kPush);
    absl::Status fed = Feed(ends, k, parts_.data.train->x(), parts_.data.train->y(),
                            microbatches[i].size(), *std::move(batch));
    if (!fed.ok()) return fed;
  }
  return absl::OkStatus();
}

absl::StatusOr<double> PipelineCompute::RunStep(const StepPlan& plan) {
  if (!stretch_.has_value()) {
    if (absl::Status begun = Begin(plan); !begun.ok()) return begun;
  }
  Stretch& stretch = *stretch_;
  const StepPlan& announced = stretch.plans[stretch.next];
  if (announced.step != plan.step || announced.samples != plan.samples) {
    return absl::InternalError(absl::StrCat("step ", plan.step, " comes where step ",
                                            announced.step,
                                            " was announced to the stages, or has "
                                            "other samples"));
  }
  const size_t needed =
      std::min(stretch.plans.size(), stretch.next + 1 + StepsFedAhead(parts_.job));
  const size_t enough = std::min(stretch.plans.size(), needed + StepsFedTogether(parts_.job) - 1);
  if (stretch.fed < needed) {
    for (; stretch.fed < enough; ++stretch.fed) {
      if (absl::Status fed = FeedStep(stretch.fed); !fed.ok()) return fed;
    }
  }
  const PhaseTimer timer(parts_.metrics, StepPhase::kForward);  // of all the pipeline
  double loss_sum = 0;
  const size_t count = batches_.Cut(plan).size();
  for (size_t i = 0; i < count; ++i) {
    const absl::StatusOr<std::vector<double>> loss =
        Result(static_cast<uint32_t>(stretch.next * stretch.of_a_step + i), 1);
    if (!loss.ok()) return loss.status();
    loss_sum += (*loss)[0];
  }
  const absl::StatusOr<absl::Duration> busy = AwaitStages(stretch.next);
  if (!busy.ok()) return busy.status();
  const absl::Time now = SteadyNow();
  const double whole =
      parts_.links.stages() *
      std::max(1e-9, absl::ToDoubleSeconds(now - std::exchange(stretch.begun, now)));
  bubble_.Set(std::max(0.0, 1 - absl::ToDoubleSeconds(*busy) / whole));
  return loss_sum;
}

absl::StatusOr<std::optional<Session::PendingEvaluation>> PipelineCompute::PullEvaluation() {
  if (stretch_.has_value()) return std::nullopt;
  return parts_.session.PullEvaluation();
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
    for (; fed < std::min(count, k + EvaluationBatchesFed(parts_.links.stages())); ++fed) {
      const Draw& draw = batches.draws()[fed];
      absl::StatusOr<std::unique_ptr<Batch>> batch = batches.Take(draw);
      if (!batch.ok()) return batch.status();
      status = Feed(ends, fed, parts_.data.test->x(), parts_.data.test->y(), draw.samples.size(),
                    *std::move(batch));
      if (!status.ok()) return status;
    }
    const absl::StatusOr<std::vector<double>> result = Result(k, 7);
    if (!result.ok()) return result.status();
    evaluation.set_samples(evaluation.samples() + static_cast<uint64_t>((*result)[0]));
    evaluation.set_loss_sum(evaluation.loss_sum() + (*result)[1]);
    evaluation.set_correct(evaluation.correct() + static_cast<uint64_t>((*result)[2]));
    evaluation.set_correct_top5(evaluation.correct_top5() + static_cast<uint64_t>((*result)[3]));
    evaluation.set_classes((*result)[4] != 0);
    evaluation.set_tokens((*result)[5] != 0);
    evaluation.set_left_out(evaluation.left_out() + (*result)[6]);
  }
  return evaluation;
}

}  // namespace parley
