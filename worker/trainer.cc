#include "worker/trainer.h"

#include <ATen/Parallel.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/usable_cores.h"
#include "worker/threads.h"
#include "worker/training_end.h"

namespace parley {

absl::Status Trainer::Run() { return EndTraining(parts_.session, parts_.log, Train()); }

absl::Status Trainer::Train() {
  // Who else computes here is known when all have joined.
  at::set_num_threads(ComputeThreads(parts_.job, UsableCores(), ComputeProcesses(parts_.job)));
  absl::Status status = parts_.compute.Attach();
  if (!status.ok()) return status;
  const int threads = ComputeThreads(parts_.job, UsableCores(), parts_.session.processes_here());
  at::set_num_threads(threads);
  steps_.Begin(threads);
  while (true) {
    if (status = EvaluateWhatIsDue(); !status.ok()) return status;
    steps_.HasGoneBack();  // in the end, or in an evaluation
    parts_.compute.Expect(parts_.session.Ahead(parts_.compute.steps_ahead()));
    std::optional<StepPlan> plan = parts_.session.NextStep();
    if (!plan.has_value()) {
      const absl::StatusOr<bool> finished = parts_.session.Finish(parts_.metrics.seconds());
      if (!finished.ok() || *finished) return finished.status();
      if (status = parts_.compute.Pull(/*ahead=*/false); !status.ok()) return status;
      continue;
    }
    const std::string preemption = parts_.preemption ? parts_.preemption() : "";
    if (!preemption.empty()) return absl::CancelledError("preempted by " + preemption);
    if (status = Step(*plan); !status.ok()) return status;
  }
}

absl::Status Trainer::Step(const StepPlan& plan) {
  const absl::StatusOr<Verdict> verdict = parts_.compute.Step(plan);
  if (!verdict.ok()) return verdict.status();
  if (absl::Status status = parts_.compute.Pull(/*ahead=*/true); !status.ok()) return status;
  steps_.Done(plan, *verdict);
  return absl::OkStatus();
}

absl::Status Trainer::EvaluateWhatIsDue() {
  while (true) {
    const auto due = parts_.compute.PullEvaluation();
    if (!due.ok()) return due.status();
    if (!due->has_value()) return absl::OkStatus();
    if (absl::Status status = Evaluate(**due); !status.ok()) return status;
    if (absl::Status status = parts_.compute.Pull(/*ahead=*/false); !status.ok()) return status;
  }
}

absl::Status Trainer::Evaluate(const Session::PendingEvaluation& due) {
  absl::StatusOr<std::optional<Evaluation>> evaluation;
  {
    const PhaseTimer timer(parts_.metrics, StepPhase::kEvaluate);
    evaluation = parts_.compute.Evaluate(due);
  }
  if (!evaluation.ok()) return evaluation.status();
  if (!evaluation->has_value()) return absl::OkStatus();
  Evaluation& result = **evaluation;
  result.set_version(due.version);
  result.set_epoch(due.epoch);
  const absl::StatusOr<bool> taken = parts_.session.ReportEvaluation(result);
  // One that is made anew is one evaluation, which took long.
  if (!taken.ok() || !*taken) return taken.status();
  parts_.metrics.EvaluationDone();
  parts_.log.Info("evaluated", {{"epoch", absl::StrCat(due.epoch)},
                                {"version", absl::StrCat(due.version)},
                                {"samples", absl::StrCat(result.samples())},
                                {"correct", absl::StrCat(result.correct())},
                                {"loss_sum", absl::StrCat(result.loss_sum())}});
  return absl::OkStatus();
}

}  // namespace parley
