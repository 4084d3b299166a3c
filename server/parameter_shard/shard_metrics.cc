#include "server/parameter_shard/shard_metrics.h"

#include "absl/time/time.h"

namespace parley {
namespace {

constexpr char kPushes[] = "parley_pushes_total";
constexpr char kPushesHelp[] = "Slices pushed to this shard, by what became of them.";
constexpr char kVerdicts[] = "parley_verdicts_total";
constexpr char kVerdictsHelp[] = "Verdicts carried out, by outcome.";
constexpr char kAhead[] = "parley_updates_ahead_total";
constexpr char kAheadHelp[] =
    "Slices whose update was to be computed before the step was decided (sync.update_ahead), by "
    "whether the verdict took it: dropped where it came first, or was not the expected one.";
constexpr char kPhase[] = "parley_step_phase_duration_seconds";
constexpr char kPhaseHelp[] =
    "Time spent in a phase: reduce is adding one push, apply one verdict, apply_copying one before "
    "which what a checkpoint still held was copied: the pause of training is how much longer that "
    "is.";

}  // namespace

ShardMetrics::ShardMetrics(Metrics& metrics)
    : step_(metrics.Gauge("parley_step", "Last decided step.")),
      job_epoch_(metrics.Gauge("parley_job_epoch", "Rises with each rollback.")),
      view_epoch_(metrics.Gauge("parley_view_epoch", "Rises with each change of membership.")),
      checkpoint_step_(
          metrics.Gauge("parley_checkpoint_last_step", "Step of the last checkpoint written.")),
      reduce_(metrics.Histogram(kPhase, kPhaseHelp, DurationBounds(), {{"phase", "reduce"}})),
      apply_(metrics.Histogram(kPhase, kPhaseHelp, DurationBounds(), {{"phase", "apply"}})),
      apply_copying_(
          metrics.Histogram(kPhase, kPhaseHelp, DurationBounds(), {{"phase", "apply_copying"}})),
      checkpoint_(metrics.Histogram("parley_checkpoint_duration_seconds",
                                    "Time to write and sync this process's file.",
                                    DurationBounds())),
      checkpoint_failures_(metrics.Counter("parley_checkpoint_failures_total",
                                           "Checkpoint files that could not be written.")),
      ahead_(metrics.Counter("parley_updates_ahead_seconds_total",
                             "Time of all threads with updates that were computed before their "
                             "steps were decided.")),
      barrier_wait_(
          metrics.Counter("parley_checkpoint_barrier_wait_seconds_total",
                          "Time in which no samples were handed out since a checkpoint was due, "
                          "until all that were "
                          "handed out before were used; on the step leader (bounded and async).")),
      staleness_(metrics.Histogram(
          "parley_staleness_steps",
          "Updates of a slice between what a worker pulled and its push (bounded and async).",
          StalenessCounts::Bounds())) {
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
  follow(kAhead, kAheadHelp, {{"outcome", "taken"}}, &ShardCounts::ahead_taken);
  follow(kAhead, kAheadHelp, {{"outcome", "dropped"}}, &ShardCounts::ahead_dropped);
  follow("parley_ranges_cut_total",
         "Ranges of samples handed out again of which a push may have been applied; on the step "
         "leader (bounded and async).",
         {}, &ShardCounts::ranges_cut);
  follow("parley_contributions_refused_total",
         "Contributions of which a push was too stale; on the step leader (async).", {},
         &ShardCounts::contributions_refused);
  follow(
      "parley_copied_bytes_total",
      "Bytes of values and optimizer state copied before an update, since a checkpoint or a pull "
      "on its way still held them.",
      {}, &ShardCounts::copied_bytes);
  follow("parley_checkpoint_barriers_total",
         "Barriers made for checkpoints; on the step leader (bounded and async).", {},
         &ShardCounts::checkpoint_barriers);
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
  ahead_.Increment(absl::ToDoubleSeconds(news.ahead_spent - ahead_shown_));
  ahead_shown_ = news.ahead_spent;
  barrier_wait_.Increment(
      absl::ToDoubleSeconds(news.counts.checkpoint_barrier_wait - barrier_wait_shown_));
  barrier_wait_shown_ = news.counts.checkpoint_barrier_wait;
  const StalenessCounts& staleness = news.counts.staleness;
  std::vector<double> more;
  for (size_t i = 0; i < staleness.buckets.size(); ++i) {
    more.push_back(static_cast<double>(staleness.buckets[i] - staleness_shown_.buckets[i]));
  }
  staleness_.ObserveMultiple(more, staleness.sum - staleness_shown_.sum);
  staleness_shown_ = staleness;
  step_.Set(static_cast<double>(news.version));
  if (news.routing == nullptr) return;
  job_epoch_.Set(static_cast<double>(news.routing->view().job_epoch()));
  view_epoch_.Set(static_cast<double>(news.routing->view().view_epoch()));
}

void ShardMetrics::OnPhase(LockedShard::Phase phase, absl::Duration spent) {
  prometheus::Histogram& histogram = phase == LockedShard::Phase::kReduce  ? reduce_
                                     : phase == LockedShard::Phase::kApply ? apply_
                                                                           : apply_copying_;
  histogram.Observe(absl::ToDoubleSeconds(spent));
}

void ShardMetrics::OnCheckpoint(uint64_t step, absl::Duration spent, bool written) {
  if (!written) return checkpoint_failures_.Increment();
  checkpoint_.Observe(absl::ToDoubleSeconds(spent));
  checkpoint_step_.Set(static_cast<double>(step));
}

}  // namespace parley
