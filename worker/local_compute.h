#ifndef PARLEY_WORKER_LOCAL_COMPUTE_H_
#define PARLEY_WORKER_LOCAL_COMPUTE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "client/session.h"
#include "common/log.h"
#include "proto/job.pb.h"
#include "worker/autocast.h"
#include "worker/compute.h"
#include "worker/data/batch.h"
#include "worker/data/data_source.h"
#include "worker/data/datasets.h"
#include "worker/device/device.h"
#include "worker/gpu_group.h"
#include "worker/graph_choice.h"
#include "worker/loss_scale.h"
#include "worker/models/network.h"
#include "worker/step_batches.h"
#include "worker/training_binding.h"
#include "worker/training_metrics.h"

namespace parley {

// The whole model in this process, on the CPU or on one device. All parts must outlive it.
class LocalCompute final : public Compute {
 public:
  struct Parts {
    const JobConfig& job;
    Network& network;
    const Datasets& data;
    Session& session;
    TrainingMetrics& metrics;
    ComputeDevice* device = nullptr;  // where the network computes; nullptr: on the CPU
    GpuGroup* group = nullptr;        // as DeviceBinding::Options::group
    Log* log = nullptr;               // says why no CUDA graph is used, where one is wanted
  };
  explicit LocalCompute(const Parts& parts);
  ~LocalCompute() override;

  absl::Status Attach() override;
  size_t steps_ahead() const override { return batches_.steps_ahead(); }
  void Expect(const std::vector<StepPlan>& plans) override;
  absl::StatusOr<Verdict> Step(const StepPlan& plan) override;
  absl::Status Pull(bool ahead) override { return binding_->Pull(ahead); }
  absl::StatusOr<std::optional<Session::PendingEvaluation>> PullEvaluation() override;
  absl::StatusOr<std::optional<Evaluation>> Evaluate(
      const Session::PendingEvaluation& due) override;

 private:
  // One of so many.
  absl::Status Microbatch(const StepPlan& plan, size_t microbatch,
                          const std::vector<uint64_t>& samples, size_t microbatches);
  // Its samples, in the host's memory, and where the network computes.
  absl::Status TakeSamples(const StepPlan& plan, const std::vector<uint64_t>& samples,
                           std::unique_ptr<Batch>& batch,
                           std::optional<TrainingBinding::Samples>& there);
  // Forward: what backward begins with.
  absl::StatusOr<at::Tensor> LossOfMicrobatch(const StepPlan& plan, size_t microbatch,
                                              const TrainingBinding::Samples& there,
                                              size_t samples);
  // Forward and backward of a step's only microbatch as a graph of the device's work. False where
  // it cannot be recorded; nothing was done then.
  absl::StatusOr<bool> StepAsGraph(const StepPlan& plan, const TrainingBinding::Samples& there);
  // A batch's samples, where the network computes.
  absl::StatusOr<TrainingBinding::Samples> ToNetwork(const DataSource& source, size_t samples,
                                                     Batch& batch);
  // While a device still computes: the samples that the next step is likely to begin with.
  absl::Status BringAhead();
  // Those are not asked for.
  absl::Status DropAhead();
  // In the job's precision; what it returns is float32.
  at::Tensor Forward(const at::Tensor& x);

  const Parts parts_;
  LossScale loss_scale_;
  GraphChoice graphs_;
  std::optional<TrainingBinding::Samples> graph_samples_;  // where the graph reads them
  StepBatches batches_;
  struct Brought {
    std::unique_ptr<Batch> batch;    // pinned: goes when the copies of it are over, after `there`
    TrainingBinding::Samples there;  // the same samples
  };
  std::optional<Brought> brought_;  // before binding_: where that goes first its copies are awaited
  std::unique_ptr<TrainingBinding> binding_;  // set by Attach
  // Mean losses of the step's microbatches and their samples: read at the step's end, since to read
  // one waits for the device.
  std::vector<std::pair<at::Tensor, size_t>> losses_;
};

}  // namespace parley

#endif  // PARLEY_WORKER_LOCAL_COMPUTE_H_
