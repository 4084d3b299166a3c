// The session's verbs beside and after the steps: evaluation, the end, failure.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "client/worker_session.h"

namespace parley {

SampleRange WorkerSession::evaluation_part() const {
  SampleRange part;
  if (!data_.has_value()) return part;
  // Among those who take part in the next step: all know the same ones at a version.
  const std::vector<uint32_t>& contributors =
      leases_.has_value() ? leases_->contributors() : data_->contributors();
  const auto place = std::lower_bound(contributors.begin(), contributors.end(), ordinal());
  if (place == contributors.end() || *place != ordinal()) return part;
  const uint64_t workers = contributors.size();
  const uint64_t me = static_cast<uint64_t>(place - contributors.begin());
  const uint64_t samples = view().test_samples();
  // The first ones take one more where it does not divide; no product, which could overflow.
  const uint64_t each = samples / workers;
  const uint64_t more = samples % workers;
  part.set_begin(me * each + std::min(me, more));
  part.set_end((me + 1) * each + std::min(me + 1, more));
  return part;
}

absl::Status WorkerSession::ReportEvaluation(const Evaluation& part) {
  auto request = std::make_shared<ReportEvaluationRequest>();
  *request->mutable_part() = part;
  auto answer = std::make_shared<std::optional<absl::Status>>();
  calls_->ReportEvaluation(
      std::move(request),
      [answer](const absl::StatusOr<ReportEvaluationReply>& reply) { *answer = reply.status(); });
  absl::Status status = Await("reporting an evaluation", [&] { return answer->has_value(); });
  if (status.ok()) status = **answer;
  // Its part is lost then, and with it the evaluation of this version.
  return IsExpelled(status) ? JoinAnew() : status;
}

absl::Status WorkerSession::Finish(const std::vector<PhaseSeconds>& seconds) {
  while (true) {
    const absl::Status status = FinishOnce(seconds);
    if (!IsExpelled(status)) return status;
    if (absl::Status joined = JoinAnew(); !joined.ok()) return joined;
  }
}

absl::Status WorkerSession::FinishOnce(const std::vector<PhaseSeconds>& seconds) {
  if (absl::Status entered = Enter(); !entered.ok()) return entered;
  auto request = std::make_shared<FinishRequest>();
  request->set_last_step(version());
  request->mutable_seconds()->Assign(seconds.begin(), seconds.end());
  auto answer = std::make_shared<std::optional<absl::Status>>();
  calls_->Finish(std::move(request),
                 [answer](const absl::StatusOr<FinishReply>& reply) { *answer = reply.status(); });
  absl::Status status = Await("reporting the end", [&] { return answer->has_value(); });
  if (status.ok()) status = **answer;
  if (status.ok()) {
    status =
        Await("waiting for the end of the job", [this] { return watched_->phase() == FINISHED; });
  }
  if (!status.ok()) return status;
  membership()->Leave();
  left_ = true;
  return absl::OkStatus();
}

FirstCause WorkerSession::Fail(const std::string& reason, bool preempted) {
  return membership()->Fail(reason, preempted);
}

}  // namespace parley
