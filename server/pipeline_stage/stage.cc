#include "server/pipeline_stage/stage.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/pipeline/pipeline_message.h"
#include "client/torch/value_tensor.h"
#include "server/pipeline_stage/schedule/job_schedule.h"
#include "worker/microbatch_seed.h"
#include "worker/step_batches.h"
#include "worker/threads.h"

namespace parley {

Stage::Stage(const Parts& parts)
    : parts_(parts),
      references_(parts.served.Gauge("parley_remote_references",
                                     "Values that live here and others hold, and others' that this "
                                     "process holds.")),
      activation_bytes_(parts.served.Gauge(
          "parley_stage_activation_bytes",
          "Inputs and outputs of this stage's parts that are kept for their backward.")) {}

absl::Status Stage::Run() {
  absl::Status status = Train();
  if (status.ok()) return status;
  const FirstCause cause =
      parts_.session.Fail(std::string(status.message()), absl::IsCancelled(status));
  return absl::Status(status.code(), cause.text());
}

absl::Status Stage::Train() {
  const int threads = ComputeThreads(parts_.job, UsableCores());
  at::set_num_threads(threads);
  absl::Status status =
      parts_.compute.Attach(parts_.session, parts_.training_samples, parts_.test_samples);
  if (!status.ok()) return status;
  parts_.metrics.SetEpochs(parts_.session.epochs());
  parts_.log.Info("training", {{"from_step", absl::StrCat(parts_.session.version() + 1)},
                               {"pipeline", absl::StrCat(parts_.session.ordinal())},
                               {"tensors", absl::StrCat(parts_.compute.binding().specs().size())},
                               {"threads", absl::StrCat(threads)}});
  while (true) {
    absl::StatusOr<PipelineWork> work = NextWork();
    status = work.ok() ? Do(*work) : work.status();
    if (absl::IsOutOfRange(status)) {
      const absl::StatusOr<bool> finished = parts_.session.Finish(parts_.metrics.seconds());
      if (!finished.ok() || *finished) return finished.status();
      status = absl::OkStatus();
    }
    if (!status.ok()) {
      parts_.log.Warning("gives up what it was doing for its pipeline",
                         {{"why", std::string(status.message())}});
      const absl::StatusOr<Verdict> followed = parts_.links.GiveUp(status);
      if (!followed.ok()) return followed.status();
    }
    if (status = parts_.compute.binding().PullAhead(); !status.ok()) return status;
    parts_.metrics.SetEpochs(parts_.session.epochs());
    Show();
  }
}

void Stage::Show() {
  const RemoteAgent::Counts counts = parts_.links.counts();
  references_.Set(static_cast<double>(counts.values + counts.held));
  activation_bytes_.Set(static_cast<double>(parts_.compute.kept_bytes()));
}

absl::StatusOr<PipelineWork> Stage::NextWork() {
  if (absl::Status begun = parts_.links.BeginUnit(); !begun.ok()) return begun;
  const Member& worker = parts_.links.pipeline().members[0];
  const absl::StatusOr<ValuePtr> value =
      parts_.links.Await(parts_.links.Key(PipelineKind::kWork, stage()),
                         absl::StrCat("waiting for worker ", worker.ordinal(), " at ",
                                      worker.address(), " to say what comes next"));
  if (!value.ok()) return value.status();
  if (*value == nullptr) return absl::InternalError("a unit of work is gone");
  return WorkOf(**value);
}

absl::Status Stage::Do(const PipelineWork& work) {
  activations_.clear();
  gradients_.clear();
  parts_.compute.Begin();
  return work.kind == PipelineWork::Kind::kStep ? Step(work) : EvaluateVersion(work);
}

absl::Status Stage::Step(const PipelineWork& work) {
  const std::optional<StepPlan> plan = parts_.session.NextStep();
  if (!plan.has_value() || plan->step != work.version) {
    return absl::InternalError(absl::StrCat("the worker of this pipeline begins step ",
                                            work.version,
                                            ", and for this "
                                            "stage it is ",
                                            plan.has_value() ? plan->step : 0));
  }
  if (work.microbatches > 0) {
    const absl::StatusOr<Schedule> schedule = ScheduleOf(parts_.job, work.microbatches);
    if (!schedule.ok()) return schedule.status();
    if (absl::Status run = RunSchedule(*plan, *schedule); !run.ok()) return run;
  }
  absl::Status told = TellWorker(PipelineKind::kDone, stage(), 0,
                                 {absl::ToDoubleSeconds(parts_.compute.TakeBusy())});
  if (!told.ok()) return told;
  const absl::StatusOr<Verdict> verdict = parts_.compute.binding().Complete(0);
  if (!verdict.ok()) return verdict.status();
  if (verdict->outcome() == Verdict::STALE) return absl::OkStatus();
  parts_.links.EndUnit();
  parts_.metrics.StepDone(*verdict, plan->samples.size(), parts_.session.traffic());
  return absl::OkStatus();
}

absl::Status Stage::RunSchedule(const StepPlan& plan, const Schedule& schedule) {
  for (const Action& action : schedule.stages[stage()]) {
    absl::Status status = RunAction(plan, schedule, action);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<LayerFlow> Stage::Receive(PipelineKind kind, uint32_t part, uint32_t microbatch) {
  const char* const what = kind == PipelineKind::kGradient ? "the gradient" : "the input";
  const absl::StatusOr<ValuePtr> value =
      parts_.links.Await(parts_.links.Key(kind, part, microbatch),
                         absl::StrCat("waiting for ", what, " of microbatch ", microbatch,
                                      " for part ", part, " of the model"));
  if (!value.ok()) return value.status();
  if (*value == nullptr || (*value)->tensors.size() < 2) {
    return absl::InvalidArgumentError("another stage has sent a message without a tensor");
  }
  LayerFlow flow;
  for (size_t i = 1; i < (*value)->tensors.size(); ++i) {
    absl::StatusOr<at::Tensor> tensor = ToTensor((*value)->tensors[i]);
    if (!tensor.ok()) return tensor.status();
    flow.push_back(*std::move(tensor));
  }
  return flow;
}

absl::Status Stage::Send(uint32_t stage, PipelineKind kind, uint32_t part, uint32_t microbatch,
                         const LayerFlow& tensors) {
  std::vector<ValueTensor> values;
  for (const at::Tensor& tensor : tensors) {
    absl::StatusOr<ValueTensor> value = ToValueTensor(tensor);
    if (!value.ok()) return value.status();
    values.push_back(*std::move(value));
  }
  return parts_.links.ToStage(stage, parts_.links.Key(kind, part, microbatch), std::move(values));
}

absl::Status Stage::TellWorker(PipelineKind kind, uint32_t part, uint32_t microbatch,
                               std::vector<double> numbers) {
  return parts_.links.ToWorker(parts_.links.Key(kind, part, microbatch),
                               {TensorOf(std::move(numbers))});
}

absl::Status Stage::Forward(const StepPlan& plan, const Action& action) {
  const uint32_t part = action.part, k = action.microbatch;
  LayerFlow inputs;
  if (const auto came = activations_.extract({part, k}); !came.empty()) {
    inputs = came.mapped();
  } else if (part == 0) {
    absl::StatusOr<LayerFlow> data = Receive(PipelineKind::kActivation, 0, k);
    if (!data.ok()) return data.status();
    inputs = *std::move(data);
  } else {
    inputs = parts_.compute.outputs(part - 1, k);  // the part before is here, too
    if (inputs.empty()) return absl::InternalError("the part before has computed nothing");
  }
  StageCompute::Target target;
  if (parts_.compute.is_last(part)) {
    const absl::StatusOr<LayerFlow> y = Receive(PipelineKind::kTarget, part, k);
    if (!y.ok()) return y.status();
    if (y->front().dim() == 0) {
      return absl::InvalidArgumentError("the worker of this pipeline sends targets of no samples");
    }
    target = {y->front(), static_cast<uint64_t>(y->front().size(0)), plan.samples.size()};
  }
  const PhaseTimer timer(parts_.metrics, StepPhase::kForward);
  absl::Status status = parts_.compute.Forward(
      part, k, inputs, MicrobatchSeed(parts_.job, plan, k, parts_.session.ordinal()),
      parts_.compute.is_last(part) ? &target : nullptr);
  if (!status.ok() || !parts_.compute.is_last(part)) return status;
  return TellWorker(PipelineKind::kResult, part, k, {parts_.compute.loss_sum(part, k)});
}

absl::Status Stage::RunAction(const StepPlan& plan, const Schedule& schedule,
                              const Action& action) {
  StageCompute& compute = parts_.compute;
  const uint32_t part = action.part, k = action.microbatch;
  // Of this part's outputs: from another stage, or from the next part here.
  const auto gradients = [&] {
    auto came = gradients_.extract({part, k});
    if (!came.empty()) return std::move(came.mapped());
    return compute.is_last(part) ? LayerFlow() : compute.TakeInputGradients(part + 1, k);
  };
  switch (action.kind) {
    case ActionKind::kForward:
      return Forward(plan, action);
    case ActionKind::kBackward: {
      const PhaseTimer timer(parts_.metrics, StepPhase::kBackward);
      absl::Status status = compute.Backward(part, k, gradients());
      if (part == 0) compute.TakeInputGradients(part, k);
      return status;
    }
    case ActionKind::kInputGradient: {
      const PhaseTimer timer(parts_.metrics, StepPhase::kBackward);
      return compute.InputGradient(part, k, gradients());
    }
    case ActionKind::kWeightGradient: {
      const PhaseTimer timer(parts_.metrics, StepPhase::kBackward);
      return compute.WeightGradient(part, k);
    }
    case ActionKind::kUpdate:
      return compute.Update(part);
    case ActionKind::kReceiveActivation: {
      absl::StatusOr<LayerFlow> flow = Receive(PipelineKind::kActivation, part, k);
      if (flow.ok()) activations_[{part, k}] = *std::move(flow);
      return flow.status();
    }
    case ActionKind::kReceiveGradient: {
      absl::StatusOr<LayerFlow> flow = Receive(PipelineKind::kGradient, part, k);
      if (flow.ok()) gradients_[{part, k}] = *std::move(flow);
      return flow.status();
    }
    case ActionKind::kSendActivation:
      return Send(StageOf(schedule, action.peer, k), PipelineKind::kActivation, action.peer, k,
                  compute.outputs(part, k));
    case ActionKind::kSendGradient: {
      const LayerFlow tensors = compute.TakeInputGradients(part, k);
      if (tensors.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat("part ", part, " of the model gives no gradient of its input, which part ",
                         action.peer, " needs: cut the model elsewhere (pipeline.cut_before)"));
      }
      return Send(StageOf(schedule, action.peer, k), PipelineKind::kGradient, action.peer, k,
                  tensors);
    }
  }
  return absl::InternalError("an action of no known kind");
}

absl::Status Stage::EvaluateVersion(const PipelineWork& work) {
  const PhaseTimer timer(parts_.metrics, StepPhase::kEvaluate);
  absl::Status status = parts_.compute.binding().PullVersion(work.version);
  if (!status.ok()) {
    return absl::IsOutOfRange(status) ? absl::InternalError(status.message()) : status;
  }
  for (uint32_t batch = 0; batch < work.microbatches; ++batch) {
    for (const uint32_t part : parts_.compute.parts()) {
      // In CHIMERA a stage has a second part, of which another stage has a copy as well.
      if (part % parts_.links.stages() != stage()) continue;
      if (status = EvaluateBatch(part, batch); !status.ok()) return status;
    }
  }
  parts_.compute.TakeBusy();
  parts_.metrics.EvaluationDone();
  return absl::OkStatus();
}

absl::Status Stage::EvaluateBatch(uint32_t part, uint32_t batch) {
  const uint32_t stages = parts_.links.stages();
  absl::StatusOr<LayerFlow> inputs;
  if (const auto came = activations_.extract({part, batch}); !came.empty()) {
    inputs = came.mapped();
  } else {
    inputs = Receive(PipelineKind::kActivation, part, batch);
  }
  if (!inputs.ok()) return inputs.status();
  at::Tensor y;
  if (parts_.compute.is_last(part)) {
    const absl::StatusOr<LayerFlow> target = Receive(PipelineKind::kTarget, part, batch);
    if (!target.ok()) return target.status();
    y = target->front();
  }
  Evaluation evaluation;
  const absl::StatusOr<LayerFlow> outputs = parts_.compute.Evaluate(part, *inputs, y, evaluation);
  if (!outputs.ok()) return outputs.status();
  if (parts_.compute.is_last(part)) {
    return TellWorker(
        PipelineKind::kResult, part, batch,
        {static_cast<double>(evaluation.samples()), evaluation.loss_sum(),
         static_cast<double>(evaluation.correct()), static_cast<double>(evaluation.correct_top5()),
         evaluation.classes() ? 1.0 : 0.0, evaluation.tokens() ? 1.0 : 0.0});
  }
  const uint32_t next = (part + 1) % stages;
  if (next == stage()) {
    activations_[{part + 1, batch}] = *outputs;
    return absl::OkStatus();
  }
  return Send(next, PipelineKind::kActivation, part + 1, batch, *outputs);
}

}  // namespace parley
