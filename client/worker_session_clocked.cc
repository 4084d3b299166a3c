// The session's verbs in bounded and async, where they differ (docs/clocked.md).
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/contribution.h"
#include "client/worker_session.h"
#include "common/job/consistency.h"
#include "common/job/data_division.h"

namespace parley {

void WorkerSession::AdoptClocks() {
  leases_.reset();
  clock_exchange_.reset();
  if (!IsClocked(options_.job)) return;
  leases_.emplace(options_.job, view());
  ClockExchange::Options exchange;
  exchange.window.contributor = ordinal();
  exchange.step_leader = view().step_leader();
  exchange.window.group_bytes = BucketBytes(options_.job);
  exchange.window.window_bytes = options_.push_window_bytes;
  exchange.window.narrow = OnWire(options_.job);
  exchange.sum = SumsContributions(options_.job);
  exchange.clip_norm = options_.job.optimizer().clip_norm();
  exchange.skip_nonfinite = options_.job.optimizer().skip_nonfinite();
  clock_exchange_ =
      std::make_unique<ClockExchange>(exchange, tensors_, *layout_, *gradients_, *calls_);
}

ParameterPuller::What WorkerSession::WhatToPull() const {
  ParameterPuller::What what;
  what.version = version();
  if (!leases_.has_value()) {
    what.lasting = options_.job.consistency().sync().backup() == 0;
    return what;
  }
  const Lease& lease = leases_->lease();
  what.clock = lease.clock();
  what.contributor = ordinal();
  what.newest = lease.clock() != 0 && !lease.has_version();
  return what;
}

void WorkerSession::FollowLease(uint64_t version, const Lease& lease) {
  leases_->Follow(version, lease);
  // It can be made up for only until the next clock is complete.
  evaluation_.reset();
  if (lease.has_evaluation()) evaluation_ = lease.evaluation();
}

std::optional<StepPlan> WorkerSession::NextClock() {
  plan_ = leases_->Next();
  if (plan_.has_value()) {
    clock_exchange_->Open(plan_->step, attempt_, plan_->weight, !plan_->ranges.empty(),
                          puller_->updates());
    Progress();
  }
  return plan_;
}

absl::StatusOr<Verdict> WorkerSession::CompleteClockOnce(const Share& share) {
  const absl::Time started = runtime_->Now();
  const absl::Status pushed = clock_exchange_->AwaitPushes([&](const std::function<bool()>& done) {
    return Await(absl::StrCat("pushing the gradients of clock ", plan_->step), done);
  });
  const absl::Time acknowledged = runtime_->Now();
  if (!pushed.ok()) return pushed;
  absl::StatusOr<CompleteReply> reply = clock_exchange_->AwaitReply(
      [&](const std::function<bool()>& done) {
        return Await(absl::StrCat("waiting for what comes after clock ", plan_->step), done);
      },
      share, plan_->data_epoch);
  {
    absl::MutexLock lock(&traffic_mu_);
    traffic_.pushed_bytes += clock_exchange_->TakePushedBytes();
    traffic_.push_seconds += absl::ToDoubleSeconds(acknowledged - started);
    traffic_.wait_seconds += absl::ToDoubleSeconds(runtime_->Now() - acknowledged);
  }
  if (!reply.ok()) return reply.status();
  FollowLease(reply->verdict().step(), reply->lease());
  Verdict verdict = std::move(*reply->mutable_verdict());
  // To the training loop STALE means that it has come back to another place.
  if (verdict.outcome() == Verdict::STALE) verdict.set_outcome(Verdict::SKIP);
  return verdict;
}

}  // namespace parley
