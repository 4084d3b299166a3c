// What a stage does of an evaluation.
#include <utility>
#include <vector>

#include "client/pipeline/pipeline_message.h"
#include "server/pipeline_stage/schedule/evaluation_schedule.h"
#include "server/pipeline_stage/stage.h"

namespace parley {

absl::Status Stage::EvaluateVersion(const PipelineWork& work) {
  const PhaseTimer timer(parts_.metrics, StepPhase::kEvaluate);
  absl::Status status = parts_.compute.binding().PullVersion(work.version);
  if (!status.ok()) {
    return absl::IsOutOfRange(status) ? absl::InternalError(status.message()) : status;
  }
  const uint32_t stages = parts_.links.stages();
  std::vector<uint32_t> parts = parts_.compute.parts();
  // In CHIMERA a stage has a second part, of which another stage has a copy as well.
  std::erase_if(parts, [&](uint32_t part) { return part % stages != stage(); });
  const EvaluationSchedule order(parts, stages, work.microbatches, EvaluationBatchesFed(stages));
  for (uint64_t i = 0; i < order.size(); ++i) {
    if (status = Evaluate(order[i]); !status.ok()) return status;
  }
  if (status = parts_.links.AwaitSent(); !status.ok()) return status;
  parts_.compute.TakeBusy();
  parts_.metrics.EvaluationDone();
  return absl::OkStatus();
}

absl::Status Stage::Evaluate(const EvaluationTurn& turn) {
  const uint32_t part = turn.part, batch = turn.batch;
  absl::StatusOr<LayerFlow> inputs;
  if (const auto came = activations_.extract({part, batch}); !came.empty()) {
    inputs = came.mapped();
  } else {
    inputs = Receive(PipelineKind::kActivation, part, batch);
  }
  if (!inputs.ok()) return inputs.status();
  parts_.compute.binding().BeginBatch(turn.group, turn.first_read);
  at::Tensor y;
  if (parts_.compute.is_last(part)) {
    const absl::StatusOr<LayerFlow> target = Receive(PipelineKind::kTarget, part, batch);
    if (!target.ok()) return target.status();
    y = target->front();
  }
  Evaluation evaluation;
  absl::StatusOr<LayerFlow> outputs = parts_.compute.Evaluate(part, *inputs, y, evaluation);
  if (!outputs.ok()) return outputs.status();
  if (parts_.compute.is_last(part)) {
    if (absl::Status settled = parts_.compute.binding().SettlePeers(); !settled.ok()) {
      return settled;
    }
    return TellWorker(
        PipelineKind::kResult, part, batch,
        {static_cast<double>(evaluation.samples()), evaluation.loss_sum(),
         static_cast<double>(evaluation.correct()), static_cast<double>(evaluation.correct_top5()),
         evaluation.classes() ? 1.0 : 0.0, evaluation.tokens() ? 1.0 : 0.0, evaluation.left_out()});
  }
  const uint32_t next = (part + 1) % parts_.links.stages();
  if (next == stage()) {
    activations_[{part + 1, batch}] = *outputs;
    return absl::OkStatus();
  }
  return Send(next, PipelineKind::kActivation, part + 1, batch, *std::move(outputs));
}

}  // namespace parley
