#include "server/pipeline_stage/stage.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/pipeline/pipeline_message.h"
#include "client/torch/value_tensor.h"
#include "common/job/job_file.h"
#include "common/usable_cores.h"
#include "server/pipeline_stage/peer_tensor.h"
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
          "Inputs and outputs of this stage's parts that are kept for their backward, and what has "
          "come for them.")),
      direct_calls_(parts.served.Counter("parley_direct_calls_total",
                                         "Calls that came over direct connections.")) {}

absl::Status Stage::Run() {
  absl::Status status = Train();
  if (status.ok()) return status;
  const FirstCause cause =
      parts_.session.Fail(std::string(status.message()), absl::IsCancelled(status));
  return absl::Status(status.code(), cause.text());
}

absl::Status Stage::Train() {
  // As a worker's (Trainer).
  at::set_num_threads(ComputeThreads(parts_.job, UsableCores(), ComputeProcesses(parts_.job)));
  absl::Status status =
      parts_.compute.Attach(parts_.session, parts_.training_samples, parts_.test_samples);
  if (!status.ok()) return status;
  const int threads = ComputeThreads(parts_.job, UsableCores(), parts_.session.processes_here());
  at::set_num_threads(threads);
  parts_.metrics.SetEpochs(parts_.session.epochs());
  parts_.log.Info("training", {{"from_step", absl::StrCat(parts_.session.version() + 1)},
                               {"pipeline", absl::StrCat(parts_.session.ordinal())},
                               {"tensors", absl::StrCat(parts_.compute.binding().specs().size())},
                               {"threads", absl::StrCat(threads)}});
  while (true) {
    absl::StatusOr<PipelineWork> work = NextWork();
    status = work.ok() ? Do(*work) : work.status();
    if (absl::IsOutOfRange(status)) {
      // Nobody reads it any more.
      parts_.compute.binding().ForgetPeers();
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
  uint64_t received = 0;
  for (const auto* const flows : {&activations_, &gradients_}) {
    for (const auto& [place, flow] : *flows) received += BytesOf(flow);
  }
  activation_bytes_.Set(static_cast<double>(parts_.compute.kept_bytes() + received));
  direct_calls_.Increment(static_cast<double>(counts.direct) - direct_calls_.Value());
}

absl::StatusOr<PipelineWork> Stage::NextWork() {
  if (absl::Status begun = parts_.links.BeginUnit(); !begun.ok()) return begun;
  if (absl::Status met = MeetPeers(); !met.ok()) return met;
  const Member& worker = parts_.links.pipeline().members[0];
  const absl::StatusOr<ValuePtr> value =
      parts_.links.Await(parts_.links.Key(PipelineKind::kWork, stage()),
                         absl::StrCat("waiting for worker ", worker.ordinal(), " at ",
                                      worker.address(), " to say what comes next"));
  if (!value.ok()) return value.status();
  if (*value == nullptr) return absl::InternalError("a unit of work is gone");
  return WorkOf(**value);
}

absl::Status Stage::MeetPeers() {
  const PipelineKey key = parts_.links.Key(PipelineKind::kOffer, stage());
  const std::pair<uint64_t, uint64_t> now(key.job_epoch, key.composition);
  // On CPUs all goes by the host; and nobody waits for what others do not say.
  if (parts_.job.device() == CPU || !parts_.job.pipeline().peer_copies() || met_ == now) {
    return absl::OkStatus();
  }
  StageBinding& binding = parts_.compute.binding();
  binding.ForgetPeers();
  const std::vector<Member>& members = parts_.links.pipeline().members;
  peers_.assign(parts_.links.stages(), false);
  const auto with_each = [&](absl::FunctionRef<absl::Status(uint32_t)> run) {
    for (uint32_t other = 0; other < parts_.links.stages(); ++other) {
      if (other == stage()) continue;
      if (absl::Status status = run(other); !status.ok()) return status;
    }
    return absl::OkStatus();
  };
  const auto await = [&](PipelineKind kind, uint32_t other) {
    return parts_.links.Await(
        parts_.links.Key(kind, other),
        absl::StrCat("waiting for stage ", other, " to say whether its device can be reached"));
  };
  const auto wrong = [] {
    return absl::InvalidArgumentError("another stage has not said how its device is reached");
  };
  std::string own;  // takes memory, where somebody is to try it
  absl::Status status = with_each([&](uint32_t other) {
    const bool is_here = members[1 + other].host() == members[1 + stage()].host();
    if (is_here && own.empty()) own = binding.peer_handle();
    return parts_.links.ToStage(other, key, {HandleValue(is_here ? own : "")});
  });
  if (!status.ok()) return status;
  status = with_each([&](uint32_t other) -> absl::Status {
    const auto offer = await(PipelineKind::kOffer, other);
    if (!offer.ok()) return offer.status();
    if (*offer == nullptr || (*offer)->tensors.size() != 2) return wrong();
    const auto handle = HandleOf((*offer)->tensors[1]);
    if (!handle.ok()) return handle.status();
    return parts_.links.ToStage(other, parts_.links.Key(PipelineKind::kAnswer, stage()),
                                {TensorOf(std::vector<int64_t>{binding.Reaches(*handle) ? 1 : 0})});
  });
  if (!status.ok()) return status;
  std::vector<std::string> reached;
  status = with_each([&](uint32_t other) -> absl::Status {
    const auto answer = await(PipelineKind::kAnswer, other);
    if (!answer.ok()) return answer.status();
    if (*answer == nullptr || (*answer)->tensors.size() != 2) return wrong();
    const auto numbers = IntegersOf((*answer)->tensors[1]);
    if (!numbers.ok()) return numbers.status();
    peers_[other] = *numbers == std::vector<int64_t>{1};
    if (peers_[other]) reached.push_back(absl::StrCat(other));
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  if (!reached.empty()) {
    parts_.log.Info("its device's tensors are copied by those of other stages",
                    {{"stages", absl::StrJoin(reached, " ")}});
  }
  met_ = now;
  return absl::OkStatus();
}

absl::Status Stage::Do(const PipelineWork& work) {
  // Its worker has all of the last unit's results.
  parts_.compute.binding().BeginUnit();
  activations_.clear();
  gradients_.clear();
  parts_.compute.Begin();
  return work.kind == PipelineWork::Kind::kStep ? Step(work) : EvaluateVersion(work);
}

absl::Status Stage::Step(const PipelineWork& work) {
  const std::vector<StepPlan> plans = parts_.session.Ahead(work.steps);
  if (plans.size() != work.steps || plans[0].step != work.version) {
    return absl::InternalError(
        absl::StrCat("the worker of this pipeline begins ", work.steps, " steps with step ",
                     work.version, ", and for this stage ", plans.size(),
                     " are left, the first of them step ", plans.empty() ? 0 : plans[0].step));
  }
  if (work.microbatches > 0 && DelayOf(parts_.job).has_value())
    return OverlappingSteps(work, plans);
  (void)parts_.session.NextStep();
  if (work.microbatches > 0) {
    const absl::StatusOr<Schedule> schedule = ScheduleOf(parts_.job, work.microbatches);
    if (!schedule.ok()) return schedule.status();
    const Stretch step = {plans, work.microbatches, *schedule, StageTable(*schedule), nullptr};
    if (absl::Status run = RunSchedule(step); !run.ok()) return run;
    if (absl::Status rest = parts_.compute.UpdateRest(); !rest.ok()) return rest;
  }
  if (absl::Status told = TellDone(0); !told.ok()) return told;
  // Without it there is no verdict.
  if (absl::Status came = parts_.links.AwaitSent(); !came.ok()) return came;
  const absl::StatusOr<Verdict> verdict = parts_.compute.binding().Complete(0);
  if (!verdict.ok()) return verdict.status();
  if (verdict->outcome() == Verdict::STALE) return absl::OkStatus();
  parts_.links.EndUnit();
  parts_.metrics.StepDone(*verdict, plans[0].samples.size(), parts_.session.traffic());
  return absl::OkStatus();
}

absl::Status Stage::OverlappingSteps(const PipelineWork& work, const std::vector<StepPlan>& plans) {
  if (work.microbatches > uint64_t{work.steps} * std::max(1U, parts_.job.accumulate())) {
    return absl::InvalidArgumentError(
        absl::StrCat("the worker of this pipeline begins ", work.microbatches, " microbatches of ",
                     work.steps, " steps, whose accumulate is ", parts_.job.accumulate()));
  }
  const absl::StatusOr<Schedule> schedule = ScheduleOf(parts_.job, work.microbatches);
  if (!schedule.ok()) return schedule.status();
  WeightStash::Options options;
  options.plans = plans;
  options.delay = *DelayOf(parts_.job);
  options.lost = [this] { return parts_.links.lost(); };
  options.patience = 2 * Liveness(parts_.job) + Autonomy(parts_.job);
  options.on_decided = [this](const Verdict& verdict, const StepPlan& plan) {
    parts_.metrics.StepDone(verdict, plan.samples.size(), parts_.session.traffic());
  };
  WeightStash stash(options, parts_.session, parts_.compute.binding().module());
  if (absl::Status begun = stash.Begin(); !begun.ok()) return begun;
  parts_.links.WaitThrough(&stash);
  const absl::Status run = RunSchedule(
      {plans, std::max(1U, parts_.job.accumulate()), *schedule, StageTable(*schedule), &stash});
  parts_.links.WaitThrough(nullptr);
  const absl::StatusOr<bool> counted = stash.End(run);
  if (counted.ok() && *counted) parts_.links.EndUnit();
  return counted.status();
}

absl::Status Stage::RunSchedule(const Stretch& stretch) {
  for (const Action& action : stretch.schedule.stages[stage()]) {
    absl::Status status = RunAction(stretch, action);
    if (!status.ok()) return status;
    if (IsCompute(action.kind)) Show();
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
  if (IsOnDevice(**value)) {
    const auto tensors = PeerTensorsOf(absl::MakeConstSpan((*value)->tensors).subspan(1));
    if (!tensors.ok()) return tensors.status();
    return parts_.compute.FromPeer(*tensors);
  }
  LayerFlow flow;
  for (size_t i = 1; i < (*value)->tensors.size(); ++i) {
    absl::StatusOr<at::Tensor> tensor = ToTensor((*value)->tensors[i]);
    if (!tensor.ok()) return tensor.status();
    flow.push_back(*std::move(tensor));
  }
  return parts_.compute.FromHost(std::move(flow));
}

absl::Status Stage::Send(uint32_t stage, PipelineKind kind, uint32_t part, uint32_t microbatch,
                         LayerFlow tensors) {
  if (stage < peers_.size() && peers_[stage]) {
    const auto placed = parts_.compute.ToPeer(std::move(tensors));
    if (!placed.ok()) return placed.status();
    return parts_.links.ToStage(stage, parts_.links.Key(kind, part, microbatch), ToValues(*placed),
                                /*on_device=*/true);
  }
  const absl::StatusOr<LayerFlow> here = parts_.compute.ToHost(std::move(tensors));
  if (!here.ok()) return here.status();
  std::vector<ValueTensor> values;
  for (const at::Tensor& tensor : *here) {
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

absl::Status Stage::TellDone(uint32_t step) {
  if (absl::Status settled = parts_.compute.binding().SettlePeers(); !settled.ok()) return settled;
  return TellWorker(PipelineKind::kDone, stage(), step,
                    {absl::ToDoubleSeconds(parts_.compute.TakeBusy())});
}

absl::Status Stage::Forward(const Stretch& stretch, const Action& action) {
  const uint32_t part = action.part, k = action.microbatch;
  const size_t step = k / stretch.of_a_step;
  const StepPlan& plan = stretch.plans[step];
  LayerFlow inputs;
  if (const auto came = activations_.extract({part, k}); !came.empty()) {
    inputs = came.mapped();
  } else if (part == 0) {
    absl::StatusOr<LayerFlow> data = Receive(PipelineKind::kActivation, 0, k);
    if (!data.ok()) return data.status();
    inputs = *std::move(data);
  } else {
    inputs = parts_.compute.TakeOutputs(part - 1, k);  // the part before is here, too
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
  if (absl::Status weights = UseWeights(stretch, k); !weights.ok()) return weights;
  const PhaseTimer timer(parts_.metrics, StepPhase::kForward);
  const uint64_t seed = MicrobatchSeed(parts_.job, plan, k - step * stretch.of_a_step);
  absl::Status status = parts_.compute.Forward(part, k, inputs, seed,
                                               parts_.compute.is_last(part) ? &target : nullptr);
  if (!status.ok() || !parts_.compute.is_last(part)) return status;
  return TellWorker(PipelineKind::kResult, part, k, {parts_.compute.loss_sum(part, k)});
}

absl::Status Stage::UseWeights(const Stretch& stretch, uint32_t microbatch) {
  if (stretch.stash == nullptr) return absl::OkStatus();
  return stretch.stash->Use(microbatch / stretch.of_a_step);
}

absl::Status Stage::Update(const Stretch& stretch, const Action& action) {
  if (stretch.stash == nullptr) return parts_.compute.Update(action.part);
  const uint32_t step = action.microbatch / stretch.of_a_step;
  if (absl::Status submitted = stretch.stash->Submit(step); !submitted.ok()) return submitted;
  Show();
  return TellDone(step);
}

absl::Status Stage::RunAction(const Stretch& stretch, const Action& action) {
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
      return Forward(stretch, action);
    case ActionKind::kBackward: {
      if (absl::Status weights = UseWeights(stretch, k); !weights.ok()) return weights;
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
      return Update(stretch, action);
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
      return Send(stretch.places.StageOf(action.peer, k), PipelineKind::kActivation, action.peer, k,
                  compute.TakeOutputs(part, k));
    case ActionKind::kSendGradient: {
      LayerFlow tensors = compute.TakeInputGradients(part, k);
      if (tensors.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat("part ", part, " of the model gives no gradient of its input, which part ",
                         action.peer, " needs: cut the model elsewhere (pipeline.cut_before)"));
      }
      return Send(stretch.places.StageOf(action.peer, k), PipelineKind::kGradient, action.peer, k,
                  std::move(tensors));
    }
  }
  return absl::InternalError("an action of no known kind");
}

}  // namespace parley
