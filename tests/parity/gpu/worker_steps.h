#ifndef PARLEY_TESTS_PARITY_GPU_WORKER_STEPS_H_
#define PARLEY_TESTS_PARITY_GPU_WORKER_STEPS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "client/trace.h"
#include "proto/job.pb.h"
#include "worker/data/datasets.h"
#include "worker/device/device.h"

namespace parley {

// A worker's steps with nobody to send them to: median seconds of one.
double ComputeAlone(const JobConfig& job, const Datasets& data, ComputeDevice& device,
                    uint64_t steps);

// The programs, and a job for one worker and one shard (tests/parity/job_text.h) of
// kStepsBesideAShard more steps than are to be measured.
struct BesideAShard {
  std::string coordinator;
  std::string shard;
  std::string job_text;
};

// Until all memory is there that both use step after step, and pinned, and one at the end.
constexpr uint64_t kStepsBesideAShard = 41;

// Mean seconds of a shard's work on a step with such gradients, where nobody computes, copies or
// reads what it has made: all of it is awaited.
double ShardAlone(const BesideAShard& with, const Datasets& data);

struct WithShard {
  double step = 0;    // median seconds
  double update = 0;  // the shard's work on one, mean seconds
};

// Training over shared memory. With a trace, each step's streams go into it.
WithShard TrainWithAShard(const BesideAShard& with, const Datasets& data, ComputeDevice& device,
                          const std::shared_ptr<Trace>& trace = nullptr);

}  // namespace parley

#endif  // PARLEY_TESTS_PARITY_GPU_WORKER_STEPS_H_
