#ifndef PARLEY_WORKER_STEP_BATCHES_H_
#define PARLEY_WORKER_STEP_BATCHES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/step_plan.h"
#include "proto/job.pb.h"
#include "proto/types.pb.h"
#include "worker/data/datasets.h"
#include "worker/data/prefetcher.h"

namespace parley {

// The samples of a step cut into microbatches of at most `batch`.
std::vector<std::vector<uint64_t>> Microbatches(const std::vector<uint64_t>& samples, size_t batch);

// The microbatches of a worker's steps, read ahead on a thread. The training thread uses it.
class StepBatches {
 public:
  // allocate: as Prefetcher's.
  StepBatches(const JobConfig& job, const Datasets& data, AllocateBatch allocate = nullptr);

  // How many steps ahead it is of use to know.
  size_t steps_ahead() const;
  // held: of a batch that TakePrepared has given, and that is not asked for yet; or nullptr.
  void Expect(const std::vector<StepPlan>& plans, const Draw* held = nullptr);

  std::vector<std::vector<uint64_t>> Cut(const StepPlan& plan) const {
    return Microbatches(plan.samples, batch_);
  }
  // The codes of Prefetcher::Take.
  absl::StatusOr<std::unique_ptr<Batch>> Take(const StepPlan& plan,
                                              const std::vector<uint64_t>& microbatch) {
    return prefetcher_.Take({microbatch, plan.data_epoch});
  }
  // The next one, as far as one can know, where it is there; else nullptr.
  std::unique_ptr<Batch> TakePrepared() { return prefetcher_.TakePrepared(); }
  void Recycle(std::unique_ptr<Batch> batch) { prefetcher_.Recycle(std::move(batch)); }

 private:
  const size_t batch_;
  const size_t ahead_;       // batches
  const size_t accumulate_;  // of a step
  Prefetcher prefetcher_;
};

// The test samples of one evaluation, in batches, read ahead; to be taken one after the other.
class EvaluationBatches {
 public:
  EvaluationBatches(const JobConfig& job, const Datasets& data, const SampleRange& samples,
                    uint64_t epoch);

  const std::vector<Draw>& draws() const { return draws_; }
  absl::StatusOr<std::unique_ptr<Batch>> Take(const Draw& draw) { return prefetcher_.Take(draw); }
  void Recycle(std::unique_ptr<Batch> batch) { prefetcher_.Recycle(std::move(batch)); }

 private:
  std::vector<Draw> draws_;
  Prefetcher prefetcher_;
};

}  // namespace parley

#endif  // PARLEY_WORKER_STEP_BATCHES_H_
