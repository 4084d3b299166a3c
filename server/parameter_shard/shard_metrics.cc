#include "server/parameter_shard/shard_metrics.h"

#include "absl/time/time.h"

namespace parley {
namespace {

constexpr char kPushes[] = "parley_pushes_total";
constexpr char kPushesHelp[] = "Slices pushed to this shard, by what became of them.";
constexpr char kVerdicts[] = "parley_verdicts_total";
constexpr char kVerdictsHelp[] = "Verdicts carried out, by outcome.";
constexpr char kPhase[] = "parley_step_phase_duration_seconds";
constexpr char kPhaseHelp[] =
    "Time spent in a phase: reduce is adding one push, apply one verdict.";

}  // namespace

ShardMetrics::ShardMetrics(Metrics& metrics)
    : step_(metrics.Gauge("parley_step", "Last decided step.")),
      job_epoch_(metrics.Gauge("parley_job_epoch", "Rises with each rollback.")),
      view_epoch_(metrics.Gauge("parley_view_epoch", "Rises with each change of membership.")),
      checkpoint_step_(
          metrics.Gauge("parley_checkpoint_last_step", "Step of the last checkpoint written.")),
      reduce_(metrics.Histogram(kPhase, kPhaseHelp, DurationBounds(), {{"phase", "reduce"}})),
      apply_(metrics.Histogram(kPhase, kPhaseHelp, DurationBounds(), {{"phase", "apply"}})),
      checkpoint_(metrics.Histogram("parley_checkpoint_duration_seconds",
                                    "Time to write and sync this process's file.",
                                    DurationBounds())) {
  const auto follow = [&](const char* name, const char* help, const Metrics::Labels& labels,
                          uint64_t ShardCounts::*count) {
    followers_.push_back({metrics.Counter(name, help, labels), count});
  };
  follow(kPushes, kPushesHelp, {{"outcome", "added"}}, &ShardCounts::pushes_added);
  follow(kPushes, kPushesHelp, {{"outcome", "duplicate"}}, &ShardCounts::pushes_duplicate);
  follow(kPushes, kPushesHelp, {{"outcome", "stale"}}, &ShardCounts::pushes_stale);
  follow(kPushes, kPushesHelp, {{"outcome", "fenced"}}, &ShardCounts::pushes_fenced);
  follow(kVerdicts, kVerdictsHelp, {{"outcome", "apply"}}, &ShardCounts::verdicts_apply);
  follow(kVerdicts, kVerdictsHelp, {{"outcome", "skip"}}, &ShardCounts::verdicts_skip);
  follow(kVerdicts, kVerdictsHelp, {{"outcome", "retry"}}, &ShardCounts::verdicts_retry);
  follow("parley_push_bytes_total", "Bytes of tensors pushed and added.", {},
         &ShardCounts::push_bytes);
  follow("parley_pull_bytes_total", "Bytes of tensors pulled.", {}, &ShardCounts::pull_bytes);
}

void ShardMetrics::Update(const LockedShard::News& news) {
  for (Follower& follower : followers_) {
    const uint64_t now = news.counts.*follower.count;
    follower.counter.Increment(static_cast<double>(now - follower.shown));
    follower.shown = now;
  }
  step_.Set(static_cast<double>(news.version));
  if (news.routing == nullptr) return;
  job_epoch_.Set(static_cast<double>(news.routing->view().job_epoch()));
  view_epoch_.Set(static_cast<double>(news.routing->view().view_epoch()));
}

void ShardMetrics::OnPhase(LockedShard::Phase phase, absl::Duration spent) {
  (phase == LockedShard::Phase::kApply ? apply_ : reduce_).Observe(absl::ToDoubleSeconds(spent));
}

void ShardMetrics::OnCheckpoint(uint64_t step, absl::Duration spent) {
  checkpoint_.Observe(absl::ToDoubleSeconds(spent));
  checkpoint_step_.Set(static_cast<double>(step));
}

}  // namespace parley
