// The session's verbs of a step: NextStep, Ahead, Push, Complete.
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/contribution.h"
#include "client/worker_session.h"
#include "common/job/data_division.h"

namespace parley {
namespace {

// Of values that the step leader is asked to send with its verdict.
constexpr size_t kMostBytesWithVerdict = 64 << 10;

}  // namespace

std::optional<StepPlan> WorkerSession::NextStep() {
  if (!entered_) return std::nullopt;
  if (plan_.has_value()) return plan_;  // open already
  if (watched().drained()) return std::nullopt;
  if (leases_.has_value()) return NextClock();
  plan_ = data_->Next();
  if (plan_.has_value()) {
    // It has not pulled, and may write all of them now. It may do so again: from now on it waits.
    if (IsRead() && ahead_ != version()) {
      skips_pulls_ = true;
      LeaveGradients();
    }
    exchange_->Open(plan_->step, std::exchange(attempt_, 0), plan_->weight, IsRead());
    Progress();
    activity_->Work(absl::StrCat("forward and backward of step ", plan_->step), plan_->step);
  }
  return plan_;
}

std::vector<StepPlan> WorkerSession::Ahead(size_t count) const {
  if (!entered_) return {};
  if (!leases_.has_value()) return data_->Ahead(count);
  const std::optional<StepPlan> next = leases_->Next();
  return next.has_value() && count > 0 ? std::vector<StepPlan>{*next} : std::vector<StepPlan>();
}

absl::Status WorkerSession::Push(size_t tensor) {
  if (absl::Status status = BeforePush(); !status.ok()) return status;
  if (is_void_) return absl::OkStatus();
  return clock_exchange_ != nullptr ? clock_exchange_->Push(tensor) : exchange_->Push(tensor);
}

absl::Status WorkerSession::PushNonzero(size_t tensor, std::string_view nonzero) {
  if (absl::Status status = BeforePush(); !status.ok()) return status;
  if (is_void_) return absl::OkStatus();
  return clock_exchange_ != nullptr ? clock_exchange_->Push(tensor)
                                    : exchange_->PushNonzero(tensor, nonzero);
}

absl::Status WorkerSession::PushUntil(size_t tensor, size_t bytes) {
  if (absl::Status status = BeforePush(); !status.ok()) return status;
  // In bounded and async a push counts when it comes: as a whole.
  if (is_void_ || clock_exchange_ != nullptr) return absl::OkStatus();
  return exchange_->PushUntil(tensor, bytes);
}

absl::Status WorkerSession::BeforePush() {
  if (exchange_ == nullptr) return absl::FailedPreconditionError("Push: Register comes first");
  const std::shared_ptr<Membership> member = membership();
  const std::optional<FirstCause> failed = member->failure();
  if (failed.has_value()) return absl::AbortedError(failed->text());
  member->Progress(0, 0);
  return absl::OkStatus();
}

absl::StatusOr<Verdict> WorkerSession::Complete(double loss_sum) {
  if (!plan_.has_value()) return absl::FailedPreconditionError("Complete: no step is open");
  if (exchange_ != nullptr && !is_void_) {
    if (absl::Status whole = exchange_->CheckWhole(); !whole.ok()) return whole;
  }
  Share share;
  share.set_contributor(ordinal());
  share.set_weight(plan_->contributor_weight);
  share.set_samples(Count(plan_->contributor_ranges));
  share.mutable_ranges()->Assign(plan_->contributor_ranges.begin(),
                                 plan_->contributor_ranges.end());
  share.set_loss_sum(loss_sum);
  // Without all values of its version the step cannot count.
  absl::Status pulled = AwaitPulled(std::nullopt);
  if (pulled.ok() && !parameters_->Stands()) {
    pulled = absl::OutOfRangeError("the shards have gone on while this worker read their values");
  }
  absl::StatusOr<Verdict> verdict = !pulled.ok()          ? pulled
                                    : leases_.has_value() ? CompleteClockOnce(share)
                                                          : CompleteOnce(share);
  if (!verdict.ok()) {
    Verdict stale;
    stale.set_step(plan_->step);
    stale.set_outcome(Verdict::STALE);
    if (!pulled.ok() && absl::IsOutOfRange(pulled)) {  // the others have passed its version
      LoseTrack();
      return stale;
    }
    if (absl::Status status = FollowJob(verdict.status()); !status.ok()) return status;
    return stale;
  }
  if (leases_.has_value()) {
    plan_.reset();
    Progress();
    return verdict;
  }
  if (verdict->outcome() == Verdict::STALE) {
    LoseTrack();
    return verdict;
  }
  const absl::Status decided = data_->Decide(*verdict);
  if (!decided.ok()) return decided;
  if (verdict->has_evaluation()) evaluation_ = verdict->evaluation();
  plan_.reset();
  Progress();
  activity_->Decided(version());
  return verdict;
}

absl::StatusOr<Verdict> WorkerSession::CompleteOnce(const Share& share) {
  while (true) {
    const absl::Time started = runtime_->Now();
    const absl::Status pushed = exchange_->AwaitPushes([&](const std::function<bool()>& done) {
      return AwaitPeers(absl::StrCat("pushing the gradients of step ", plan_->step), done);
    });
    const absl::Time acknowledged = runtime_->Now();
    if (!pushed.ok()) return pushed;
    // Whoever pulls after each step will do so after this one.
    const bool will_pull = held_.has_value() && *held_ + 1 == plan_->step;
    std::vector<uint32_t> pulled;
    if (will_pull && calls_->JoinsCalls(exchange_->step_leader())) {
      puller_->Ask(plan_->step);
      pulled = puller_->AllOf(exchange_->step_leader(), kMostBytesWithVerdict);
    }
    absl::StatusOr<Verdict> verdict = exchange_->AwaitVerdict(
        [&](const std::function<bool()>& done) {
          // Behind Complete, which its shard decides sooner so.
          if (will_pull) puller_->Ask(plan_->step);
          return AwaitPeers(absl::StrCat("waiting for the verdict of step ", plan_->step), done);
        },
        share, plan_->data_epoch, pulled, VerdictAtOnce());
    if (std::optional<TensorPull> values = exchange_->TakePulled(); values.has_value()) {
      puller_->Give(plan_->step, exchange_->step_leader(), *std::move(values));
    }
    const bool is_decided = verdict.ok() && (verdict->outcome() == Verdict::APPLY ||
                                             verdict->outcome() == Verdict::SKIP);
    if (is_decided && VerdictAtOnce()) {
      exchange_->LeaveReaders();
      is_read_.assign(tensors_.size(), true);
    } else if (is_decided) {
      absl::Status read = exchange_->AwaitReaders([&](const std::function<bool()>& done) {
        return AwaitPeers(absl::StrCat("waiting for all shards to carry out step ", plan_->step),
                          done);
      });
      if (!read.ok()) verdict = read;
    }
    {
      absl::MutexLock lock(&traffic_mu_);
      traffic_.pushed_bytes += exchange_->TakePushedBytes();
      traffic_.push_seconds += absl::ToDoubleSeconds(acknowledged - started);
      traffic_.wait_seconds += absl::ToDoubleSeconds(runtime_->Now() - acknowledged);
    }
    if (!verdict.ok() || verdict->outcome() != Verdict::RETRY) return verdict;
  }
}

DataType WorkerSession::gradients_on_wire() const {
  if (calls_ == nullptr || !layout_.has_value() || reducer_ != nullptr)
    return DATA_TYPE_UNSPECIFIED;
  for (uint32_t shard = 0; shard < layout_->by_shard().size(); ++shard) {
    if (calls_->ReadsLentMemory(shard)) return DATA_TYPE_UNSPECIFIED;
  }
  return OnWire(options_.job);
}

}  // namespace parley
