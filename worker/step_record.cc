#include "worker/step_record.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock/steady_now.h"

namespace parley {

void StepRecord::Begin(int threads) {
  job_epoch_ = session_.epochs().job;
  memberships_ = session_.memberships();
  metrics_.SetEpochs(session_.epochs());
  metrics_.LateSteps();  // from the beginning, so that the first one is seen as a rise
  log_.Info("training", {{"from_step", absl::StrCat(session_.version() + 1)},
                         {"threads", absl::StrCat(threads)}});
}

bool StepRecord::HasGoneBack() {
  const Session::Epochs epochs = session_.epochs();
  memberships_ = session_.memberships();
  metrics_.SetEpochs(epochs);
  const std::optional<uint64_t> before = std::exchange(job_epoch_, epochs.job);
  if (before.value_or(epochs.job) == epochs.job) return false;
  log_.Warning(
      "the job went back to a checkpoint",
      {{"job_epoch", absl::StrCat(epochs.job)}, {"version", absl::StrCat(session_.version())}});
  return true;
}

void StepRecord::Done(const StepPlan& plan, const Verdict& verdict) {
  const bool rejoined = job_epoch_.has_value() && session_.memberships() != memberships_;
  if (HasGoneBack()) return;
  if (verdict.outcome() == Verdict::STALE) return NoteMissed(plan, rejoined);
  metrics_.StepDone(verdict, plan.samples.size(), session_.traffic());
}

void StepRecord::NoteMissed(const StepPlan& plan, bool rejoined) {
  metrics_.LateSteps().Increment();
  LogPairs pairs = {{"step", absl::StrCat(plan.step)},
                    {"version", absl::StrCat(session_.version())}};
  if (rejoined) {
    log_.Warning(
        "the job went on without this step of this worker, which was cut off and has joined anew",
        pairs);
    return;
  }
  const uint64_t times = late_.OneMore(SteadyNow());
  if (times == 0) return;
  pairs.emplace_back("times", absl::StrCat(times));
  log_.Warning("the job went on without this step of this worker, which was late", pairs);
}

}  // namespace parley
