#ifndef PARLEY_WORKER_TRAINING_METRICS_H_
#define PARLEY_WORKER_TRAINING_METRICS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/session.h"
#include "client/trace.h"
#include "common/clock/steady_now.h"
#include "common/metrics/metrics.h"

namespace parley {

// Where a worker's time goes. kPush: the sending that backward did not hide; kWait: for the others
// and the verdict.
enum class StepPhase { kData, kForward, kBackward, kPush, kWait, kPull, kEvaluate };
inline constexpr size_t kStepPhases = 7;

// The worker's metrics and the seconds of each phase for the table at the end. `metrics` must
// outlive it. Thread-safe.
class TrainingMetrics {
 public:
  // trace: takes down each phase too; may be null.
  explicit TrainingMetrics(Metrics& metrics, std::shared_ptr<Trace> trace = nullptr);

  const std::shared_ptr<Trace>& trace() const { return trace_; }

  // Time spent in a phase during the current step; a phase may come several times in it.
  void Spent(StepPhase phase, absl::Duration duration);
  void Spent(StepPhase phase, absl::Time begin, absl::Time end);

  // The step is over: its phases become one observation each.
  void StepDone(const Verdict& verdict, uint64_t own_samples, const Session::Traffic& traffic);

  // What the loss of the step that is computed is multiplied by. The first call with another value
  // than 1 makes the metric.
  void SetLossScale(double scale);

  // Steps that the job went on without. The first call makes the metric: a stage has none.
  prometheus::Counter& LateSteps();

  // Those of the session, when they may have changed.
  void SetEpochs(const Session::Epochs& epochs);

  // An evaluation is over.
  void EvaluationDone();

  // Totals since the beginning.
  std::vector<PhaseSeconds> seconds() const;

 private:
  void Observe(StepPhase phase) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  struct PhaseTime {
    absl::Duration step;   // in the current step
    absl::Duration total;  // before it
    prometheus::Histogram* histogram = nullptr;
  };
  Metrics& metrics_;
  const std::shared_ptr<Trace> trace_;
  mutable absl::Mutex mu_;
  std::array<PhaseTime, kStepPhases> phases_ ABSL_GUARDED_BY(mu_);
  Session::Traffic seen_ ABSL_GUARDED_BY(mu_);  // counted already
  prometheus::Gauge& step_;
  prometheus::Gauge& job_epoch_;
  prometheus::Gauge& view_epoch_;
  prometheus::Counter& samples_;
  prometheus::Gauge& loss_;
  prometheus::Gauge* loss_scale_ ABSL_GUARDED_BY(mu_) = nullptr;
  prometheus::Counter& pushed_;
  prometheus::Counter& pulled_;
};

// Adds the time of its own life to a phase.
class PhaseTimer {
 public:
  PhaseTimer(TrainingMetrics& metrics, StepPhase phase)
      : metrics_(metrics), phase_(phase), begin_(SteadyNow()) {}
  ~PhaseTimer() { metrics_.Spent(phase_, begin_, SteadyNow()); }
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

 private:
  TrainingMetrics& metrics_;
  const StepPhase phase_;
  const absl::Time begin_;
};

}  // namespace parley

#endif  // PARLEY_WORKER_TRAINING_METRICS_H_
