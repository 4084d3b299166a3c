#include "worker/training_metrics.h"

#include <utility>

namespace parley {
namespace {

constexpr std::array<const char*, kStepPhases> kNames = {"data", "forward", "backward", "push",
                                                         "wait", "pull",    "evaluate"};

}  // namespace

TrainingMetrics::TrainingMetrics(Metrics& metrics, std::shared_ptr<Trace> trace)
    : metrics_(metrics),
      trace_(std::move(trace)),
      step_(metrics.Gauge("parley_step", "The last decided step that this process knows.")),
      job_epoch_(metrics.Gauge("parley_job_epoch", "Rises with each rollback.")),
      view_epoch_(metrics.Gauge("parley_view_epoch", "Rises with each change of membership.")),
      samples_(metrics.Counter("parley_samples_total", "Training samples that this worker used.")),
      loss_(metrics.Gauge("parley_loss", "Mean loss over all samples of the last decided step.")),
      pushed_(metrics.Counter("parley_push_bytes_total", "Gradient bytes sent to the shards.")),
      pulled_(metrics.Counter("parley_pull_bytes_total", "Parameter bytes received.")) {
  for (size_t i = 0; i < kStepPhases; ++i) {
    phases_[i].histogram =
        &metrics.Histogram("parley_step_phase_duration_seconds",
                           "Time of the training thread in each phase of a step.", DurationBounds(),
                           {{"phase", kNames[i]}});
  }
}

void TrainingMetrics::Spent(StepPhase phase, absl::Duration duration) {
  absl::MutexLock lock(&mu_);
  phases_[static_cast<size_t>(phase)].step += duration;
}

void TrainingMetrics::Spent(StepPhase phase, absl::Time begin, absl::Time end) {
  Spent(phase, end - begin);
  if (trace_ != nullptr) trace_->Span(kNames[static_cast<size_t>(phase)], begin, end);
}

void TrainingMetrics::Observe(StepPhase phase) {
  PhaseTime& time = phases_[static_cast<size_t>(phase)];
  time.histogram->Observe(absl::ToDoubleSeconds(time.step));
  time.total += time.step;
  time.step = absl::ZeroDuration();
}

void TrainingMetrics::StepDone(const Verdict& verdict, uint64_t own_samples,
                               const Session::Traffic& traffic) {
  absl::MutexLock lock(&mu_);
  const auto add = [&](StepPhase phase, double seconds) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    phases_[static_cast<size_t>(phase)].step += absl::Seconds(seconds);
  };
  add(StepPhase::kPush, traffic.push_seconds - seen_.push_seconds);
  add(StepPhase::kWait, traffic.wait_seconds - seen_.wait_seconds);
  add(StepPhase::kPull, traffic.pull_seconds - seen_.pull_seconds);
  pushed_.Increment(static_cast<double>(traffic.pushed_bytes - seen_.pushed_bytes));
  pulled_.Increment(static_cast<double>(traffic.pulled_bytes - seen_.pulled_bytes));
  seen_ = traffic;
  for (size_t i = 0; i < kStepPhases; ++i) {
    if (static_cast<StepPhase>(i) != StepPhase::kEvaluate) Observe(static_cast<StepPhase>(i));
  }
  double loss = 0;
  uint64_t samples = 0;
  for (const Share& share : verdict.shares()) {
    loss += share.loss_sum();
    samples += share.samples();
  }
  if (samples > 0) loss_.Set(loss / static_cast<double>(samples));
  samples_.Increment(static_cast<double>(own_samples));
  step_.Set(static_cast<double>(verdict.step()));
}

void TrainingMetrics::SetLossScale(double scale) {
  absl::MutexLock lock(&mu_);
  if (loss_scale_ == nullptr && scale == 1) return;
  if (loss_scale_ == nullptr) {
    loss_scale_ = &metrics_.Gauge("parley_loss_scale",
                                  "What the loss is multiplied by (precision: FLOAT16_AUTOCAST).");
  }
  loss_scale_->Set(scale);
}

prometheus::Counter& TrainingMetrics::LateSteps() {
  return metrics_.Counter("parley_late_steps_total",
                          "Steps of this worker that the job went on without.");
}

void TrainingMetrics::SetEpochs(const Session::Epochs& epochs) {
  job_epoch_.Set(static_cast<double>(epochs.job));
  view_epoch_.Set(static_cast<double>(epochs.view));
}

void TrainingMetrics::EvaluationDone() {
  absl::MutexLock lock(&mu_);
  Observe(StepPhase::kEvaluate);
}

std::vector<PhaseSeconds> TrainingMetrics::seconds() const {
  absl::MutexLock lock(&mu_);
  std::vector<PhaseSeconds> seconds;
  for (size_t i = 0; i < kStepPhases; ++i) {
    PhaseSeconds& phase = seconds.emplace_back();
    phase.set_phase(kNames[i]);
    phase.set_seconds(absl::ToDoubleSeconds(phases_[i].total + phases_[i].step));
  }
  return seconds;
}

}  // namespace parley
