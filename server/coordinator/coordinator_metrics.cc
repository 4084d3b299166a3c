#include "server/coordinator/coordinator_metrics.h"

namespace parley {
namespace {

prometheus::Counter& Verdicts(Metrics& metrics, const char* outcome) {
  return metrics.Counter("parley_verdicts_total", "Decisions of the step leader, by outcome.",
                         {{"outcome", outcome}});
}

}  // namespace

CoordinatorMetrics::CoordinatorMetrics(Metrics& metrics)
    : generation_(metrics.Gauge("parley_coordinator_generation",
                                "How many coordinators the job has had; rises with each restart.")),
      members_(metrics.Gauge("parley_members", "Members that have joined and not left.")),
      expected_members_(
          metrics.Gauge("parley_expected_members", "Members that the job has when all are there.")),
      wanted_workers_(
          metrics.Gauge("parley_wanted_workers", "Workers that the job has when all are there.")),
      view_epoch_(metrics.Gauge("parley_view_epoch", "Epoch of the cluster view; 0: none yet.")),
      job_epoch_(metrics.Gauge("parley_job_epoch", "Rises when the job rolls back.")),
      step_(metrics.Gauge("parley_step", "The last decided step.")),
      samples_(metrics.Counter("parley_samples_total", "Samples of the training set used.")),
      loss_(metrics.Gauge("parley_loss", "Mean loss over the samples of the last decided step.")),
      applied_(Verdicts(metrics, "apply")),
      skipped_(Verdicts(metrics, "skip")),
      retried_(Verdicts(metrics, "retry")),
      checkpoint_duration_(metrics.Histogram("parley_checkpoint_duration_seconds",
                                             "From the order of a checkpoint to its commit.",
                                             DurationBounds())),
      checkpoint_last_step_(
          metrics.Gauge("parley_checkpoint_last_step", "Step of the last whole checkpoint.")),
      goes_back_to_step_(metrics.Gauge("parley_goes_back_to_step",
                                       "Where training would begin anew if a shard was lost.")),
      checkpoint_failures_(metrics.Counter("parley_checkpoint_failures_total",
                                           "Checkpoints that could not be written.")),
      shards_lost_(metrics.Counter("parley_shards_lost_total",
                                   "Shards lost: each time all go back to a checkpoint.")),
      steps_lost_(
          metrics.Counter("parley_steps_lost_total", "Decided steps that had to be done again.")) {}

CoordinatorMetrics::Numbers CoordinatorMetrics::Read(const CoordinatorCore& core) {
  Numbers numbers;
  numbers.generation = core.generation();
  numbers.members = core.Members().size();
  numbers.expected_members = core.ExpectedMembers();
  numbers.wanted_workers = core.wanted_workers();
  numbers.view_epoch = core.view_epoch();
  numbers.job_epoch = core.job_epoch();
  numbers.step = core.progress().step();
  numbers.samples = core.progress().samples();
  numbers.loss = core.progress().loss();
  numbers.applied = core.progress().applied();
  numbers.skipped = core.progress().skipped();
  numbers.retried = core.progress().retried();
  numbers.checkpoint_step = core.checkpoint().whole_step();
  numbers.goes_back_to_step = core.goes_back_to_step();
  numbers.checkpoint_duration = core.checkpoint().duration();
  numbers.shards_lost = core.shards_lost();
  numbers.steps_lost = core.steps_lost();
  numbers.checkpoints_written = core.checkpoint().written();
  numbers.checkpoints_failed = core.checkpoint().faults();
  return numbers;
}

void CoordinatorMetrics::Update(const Numbers& numbers) {
  generation_.Set(numbers.generation);
  members_.Set(numbers.members);
  expected_members_.Set(numbers.expected_members);
  wanted_workers_.Set(numbers.wanted_workers);
  view_epoch_.Set(numbers.view_epoch);
  job_epoch_.Set(numbers.job_epoch);
  step_.Set(numbers.step);
  samples_.Increment(numbers.samples - last_.samples);
  loss_.Set(numbers.loss);
  applied_.Increment(numbers.applied - last_.applied);
  skipped_.Increment(numbers.skipped - last_.skipped);
  retried_.Increment(numbers.retried - last_.retried);
  shards_lost_.Increment(numbers.shards_lost - last_.shards_lost);
  steps_lost_.Increment(numbers.steps_lost - last_.steps_lost);
  checkpoint_failures_.Increment(numbers.checkpoints_failed - last_.checkpoints_failed);
  if (numbers.checkpoints_written != last_.checkpoints_written) {
    checkpoint_duration_.Observe(absl::ToDoubleSeconds(numbers.checkpoint_duration));
  }
  checkpoint_last_step_.Set(numbers.checkpoint_step);
  goes_back_to_step_.Set(numbers.goes_back_to_step);
  last_ = numbers;
}

}  // namespace parley
