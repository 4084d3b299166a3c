#ifndef PARLEY_WORKER_MODELS_NETWORK_H_
#define PARLEY_WORKER_MODELS_NETWORK_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "client/torch/named_tensors.h"
#include "proto/job.pb.h"
#include "worker/data/data_source.h"

namespace parley {

// A network that a worker trains. Used by one thread. What LibTorch throws passes through Forward
// and SetTraining.
class Network {
 public:
  virtual ~Network() = default;

  // x: a batch, samples along the first dimension. Returns the outputs, samples along the first
  // dimension.
  virtual at::Tensor Forward(const at::Tensor& x) = 0;

  // Training behaviour (dropout on, batch normalisation from the batch) or that of evaluation.
  virtual void SetTraining(bool training) = 0;

  // The Forwards until the next call draw their random numbers (dropout) from it: the same ones for
  // the same seed, whatever has been drawn before. Seeds LibTorch's generators, of the CPU and of
  // GPUs where there are any.
  virtual void Seed(uint64_t seed);
  // As Seed for one Forward, which does not seed in between: the seed of what is recorded
  // (DeviceGraph) is set before it. Its numbers may be others than those after Seed.
  virtual void SeedAtOnce(uint64_t seed) { Seed(seed); }

  // Parameters and buffers, always the same names in the same order.
  virtual std::vector<NamedTensor> Tensors() const = 0;
};

// The model that the job names, with its initial values: drawn from the job's seed, or the file's.
// InvalidArgument where it does not fit samples like `x`, or the file is none of TorchScript;
// NotFound where it is missing.
absl::StatusOr<std::unique_ptr<Network>> MakeNetwork(const JobConfig& job, const SampleLayout& x);

}  // namespace parley

#endif  // PARLEY_WORKER_MODELS_NETWORK_H_
