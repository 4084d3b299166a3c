#ifndef PARLEY_WORKER_COMPUTE_H_
#define PARLEY_WORKER_COMPUTE_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/session.h"

namespace parley {

// How a worker computes what its session tells it to: by itself (LocalCompute), or by driving the
// stages of a pipeline (PipelineCompute). Owned by nobody here; the Trainer calls it on the
// training thread.
class Compute {
 public:
  virtual ~Compute() = default;

  // Registers the model with the session, gives initial values where that is this process's part,
  // and pulls. Once.
  virtual absl::Status Attach() = 0;

  // The next steps, as far as one can know, so many at most: data may be read ahead.
  virtual size_t steps_ahead() const = 0;
  virtual void Expect(const std::vector<StepPlan>& plans) = 0;

  // Computes the step that the session has opened, completes it, and returns its verdict.
  virtual absl::StatusOr<Verdict> Step(const StepPlan& plan) = 0;

  // Brings the newest version; ahead: as Session::PullAhead.
  virtual absl::Status Pull(bool ahead) = 0;

  // Session::PullEvaluation.
  virtual absl::StatusOr<std::optional<Session::PendingEvaluation>> PullEvaluation() = 0;
  // Evaluates. nullopt: it could not be ended, and the job goes on elsewhere: Pull.
  virtual absl::StatusOr<std::optional<Evaluation>> Evaluate(
      const Session::PendingEvaluation& due) = 0;
};

}  // namespace parley

#endif  // PARLEY_WORKER_COMPUTE_H_
