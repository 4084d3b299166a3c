#include "client/evaluation_reports.h"

#include <utility>

namespace parley {

void EvaluationReports::Send(ServiceCalls& calls, uint32_t ordinal, const Evaluation& part) {
  ordinal_ = ordinal;
  state_->open[part.version()] = part;
  Send(calls, part);
}

void EvaluationReports::SendAgain(ServiceCalls& calls, uint32_t ordinal) {
  const std::shared_ptr<State> former = std::exchange(state_, std::make_shared<State>());
  if (ordinal != ordinal_) return;
  for (const auto& [version, part] : former->open) {
    state_->open[version] = part;
    Send(calls, part);
  }
}

void EvaluationReports::RollBack(uint64_t version) {
  const std::shared_ptr<State> former = std::exchange(state_, std::make_shared<State>());
  state_->open.insert(former->open.begin(), former->open.upper_bound(version));
}

void EvaluationReports::Send(ServiceCalls& calls, const Evaluation& part) {
  auto request = std::make_shared<ReportEvaluationRequest>();
  *request->mutable_part() = part;
  calls.ReportEvaluation(std::move(request),
                         [state = state_, version = part.version()](
                             const absl::StatusOr<ReportEvaluationReply>& reply) {
                           if (reply.ok()) {
                             state->open.erase(version);
                           } else if (state->error.ok()) {
                             state->error = reply.status();
                           }
                         });
}

}  // namespace parley
