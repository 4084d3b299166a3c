#ifndef PARLEY_CLIENT_EVALUATION_REPORTS_H_
#define PARLEY_CLIENT_EVALUATION_REPORTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "client/service_calls.h"
#include "proto/coordinator.pb.h"

namespace parley {

// The evaluations that a worker has reported and that the coordinator has not acknowledged yet.
// Training does not wait for them, since the coordinator may be away. A WorkerSession's, on the
// training thread.
class EvaluationReports {
 public:
  // Reports the part of the worker in this place. `calls` must live until the answer, or be gone
  // before it.
  void Send(ServiceCalls& calls, uint32_t ordinal, const Evaluation& part);

  // The worker has joined anew: what is open is reported again, if it is of the same place. The
  // part of another place is for somebody else.
  void SendAgain(ServiceCalls& calls, uint32_t ordinal);

  // The job has gone back to this version: parts of later ones are forgotten, their versions will
  // be made anew. What is left is on its way no more until SendAgain.
  void RollBack(uint64_t version);

  // OK, or why a report came to nothing; it stays open.
  absl::Status error() const { return state_->error; }
  size_t open() const { return state_->open.size(); }

  // So many may be open; one must not be sent where there are.
  static constexpr size_t kMost = 16;

 private:
  // Shared with the answers. Those that a former membership still gets concern nobody.
  struct State {
    std::map<uint64_t, Evaluation> open;  // by version
    absl::Status error;
  };
  void Send(ServiceCalls& calls, const Evaluation& part);

  std::shared_ptr<State> state_ = std::make_shared<State>();
  uint32_t ordinal_ = 0;  // whose parts are open
};

}  // namespace parley

#endif  // PARLEY_CLIENT_EVALUATION_REPORTS_H_
