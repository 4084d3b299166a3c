// The session's verbs beside and after the steps: evaluation, the end, failure.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/worker_session.h"

namespace parley {

std::optional<Session::PendingEvaluation> WorkerSession::DueEvaluation() const {
  if (!evaluation_.has_value()) return std::nullopt;
  if (evaluated_.version == evaluation_->version() && evaluated_.ordinal == member_ordinal()) {
    return std::nullopt;
  }
  const auto& contributors = evaluation_->contributors();
  const auto place = std::lower_bound(contributors.begin(), contributors.end(), ordinal());
  if (place == contributors.end() || *place != ordinal()) return std::nullopt;
  // Each rank of a node group has a part of its own.
  const uint64_t group = shape().group;
  const uint64_t workers = contributors.size() * group;
  const uint64_t me =
      static_cast<uint64_t>(place - contributors.begin()) * group + member_ordinal() % group;
  const uint64_t samples = view().test_samples();
  // The first ones take one more where it does not divide; no product, which could overflow.
  const uint64_t each = samples / workers;
  const uint64_t more = samples % workers;
  PendingEvaluation due;
  due.version = evaluation_->version();
  due.epoch = evaluation_->epoch();
  due.samples.set_begin(me * each + std::min(me, more));
  due.samples.set_end((me + 1) * each + std::min(me + 1, more));
  if (due.samples.begin() == due.samples.end()) return std::nullopt;
  return due;
}

absl::StatusOr<std::optional<Session::PendingEvaluation>> WorkerSession::PullEvaluation() {
  if (!puller_.has_value()) {
    return absl::FailedPreconditionError("PullEvaluation: Register comes first");
  }
  while (true) {
    std::optional<PendingEvaluation> due = DueEvaluation();
    if (!due.has_value()) return due;
    ParameterPuller::What what = WhatToPull();
    // A version that the shards keep for that, or that all have.
    what.version = due->version;
    what.newest = false;
    what.lasting = what.lasting && due->version == version();
    absl::Status status = PullValues(what);
    if (status.ok()) return due;
    if (absl::IsOutOfRange(status)) {
      // The next such version is there already: too late for this one.
      evaluated_ = {.version = due->version, .ordinal = member_ordinal()};
      LoseTrack();
    } else {
      if (HasLostTrack(status)) status = BeginAnew();
      if (!status.ok()) return status;
    }
    // Whatever has come of that version has to go.
    if (status = Pull(); !status.ok()) return status;
  }
}

absl::StatusOr<bool> WorkerSession::ReportEvaluation(const Evaluation& part) {
  if (!puller_.has_value()) {
    return absl::FailedPreconditionError("ReportEvaluation: Register comes first");
  }
  absl::Status status = AwaitReports(EvaluationReports::kMost - 1);
  // As another member it is asked for its part again, unless it has another place now; so it is
  // after the job went back, where that version comes again.
  if (HasLostTrack(status)) {
    status = BeginAnew();
    if (status.ok()) return false;
  }
  if (!status.ok()) return status;
  // One that was stopped for long may have evaluated values that a shard was writing again: they
  // are pulled anew, if that version is there yet.
  if (!parameters_->Stands()) {
    held_.reset();
    LoseTrack();
    return false;
  }
  reports_.Send(*calls_, member_ordinal(), part);
  evaluated_ = {.version = part.version(), .ordinal = member_ordinal()};
  // With backup workers the others may not have waited; a lease stays.
  if (!leases_.has_value()) LoseTrack();
  return true;
}

absl::Status WorkerSession::AwaitReports(size_t most) {
  const absl::Status waited = Await(
      "reporting an evaluation", [&] { return reports_.open() <= most || !reports_.error().ok(); });
  return waited.ok() ? reports_.error() : waited;
}

absl::StatusOr<bool> WorkerSession::Finish(const std::vector<PhaseSeconds>& seconds) {
  if (!puller_.has_value()) return absl::FailedPreconditionError("Finish: Register comes first");
  if (watched().drained()) {
    if (absl::Status departed = Depart(); !departed.ok()) return departed;
    return true;
  }
  if (plan_.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("Finish: step ", plan_->step, " is open: Complete comes first"));
  }
  const uint64_t finished_epoch = job_epoch_;
  if (ahead_.has_value() || !pull_error_.ok()) {
    if (absl::Status pulled = Pull(); !pulled.ok()) return pulled;
    if (job_epoch_ != finished_epoch) return false;
  }
  while (true) {
    const absl::StatusOr<bool> finished = FinishOnce(seconds);
    if (finished.ok()) return finished;
    absl::Status status = finished.status();
    if (!HasLostTrack(status)) return status;
    if (absl::Status begun = BeginAnew(); !begun.ok()) return begun;
    if (job_epoch_ != finished_epoch) return false;
  }
}

bool WorkerSession::HasStepsToDo() const {
  if (is_stage()) return false;  // its worker's matter
  return leases_.has_value() ? leases_->Next().has_value() : data_->Next().has_value();
}

absl::StatusOr<bool> WorkerSession::FinishOnce(const std::vector<PhaseSeconds>& seconds) {
  if (absl::Status entered = is_stage() ? absl::OkStatus() : Enter(); !entered.ok()) return entered;
  // All would else wait for this one's part in them, or the job end with less than was asked for.
  if (HasStepsToDo()) return false;
  if (absl::Status reported = AwaitReports(0); !reported.ok()) return reported;
  absl::Status status;
  if (!is_stage()) {
    auto request = std::make_shared<FinishRequest>();
    request->set_last_step(version());
    request->mutable_seconds()->Assign(seconds.begin(), seconds.end());
    auto answer = std::make_shared<std::optional<absl::Status>>();
    calls_->Finish(std::move(request), [answer](const absl::StatusOr<FinishReply>& reply) {
      *answer = reply.status();
    });
    status = Await("reporting the end", [&] { return answer->has_value(); });
    if (status.ok()) status = **answer;
  }
  if (status.ok()) {
    status =
        Await("waiting for the end of the job", [this] { return watched().phase() == FINISHED; });
  }
  if (!status.ok()) return status;
  membership()->Leave();
  left_ = true;
  return true;
}

absl::Status WorkerSession::Depart() {
  // Its part of an evaluation is to be known; an error means that it is not waited for.
  (void)AwaitReports(0);
  if (const std::optional<FirstCause> failed = membership()->failure(); failed.has_value()) {
    return absl::AbortedError(failed->text());
  }
  DropCalls();
  membership()->Depart();
  left_ = drained_ = true;
  return absl::OkStatus();
}

absl::Status WorkerSession::DepartInstead() {
  const absl::Status departed = Depart();
  return departed.ok() ? absl::CancelledError(
                             "the job goes on without this worker, which was told "
                             "to go")
                       : departed;
}

FirstCause WorkerSession::Fail(const std::string& reason, bool preempted) {
  if (preempted) JoinNoMore(reason);
  return membership()->Fail(reason, preempted);
}

}  // namespace parley
