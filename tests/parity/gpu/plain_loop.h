#ifndef PARLEY_TESTS_PARITY_GPU_PLAIN_LOOP_H_
#define PARLEY_TESTS_PARITY_GPU_PLAIN_LOOP_H_

#include <ATen/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "proto/job.pb.h"
#include "worker/data/datasets.h"
#include "worker/device/device.h"
#include "worker/models/network.h"

namespace parley {

// The loop that one would write without parley: forward and backward, with batches that lie in
// pinned memory. One thread uses it.
class PlainLoop {
 public:
  // All outlive it.
  PlainLoop(const JobConfig& job, const Datasets& data, ComputeDevice& device);

  // Median seconds of a step's forward and backward.
  double Run(uint64_t steps);

 private:
  // As a loader's processes would have it ready.
  void MakeBatch();
  void Step();

  const JobConfig& job_;
  const Datasets& data_;
  ComputeDevice& device_;
  const at::Device where_;
  std::mt19937_64 random_{1};
  const std::unique_ptr<Network> network_;
  std::vector<std::pair<at::Tensor, at::Tensor>> batches_;
  size_t step_ = 0;
};

}  // namespace parley

#endif  // PARLEY_TESTS_PARITY_GPU_PLAIN_LOOP_H_
