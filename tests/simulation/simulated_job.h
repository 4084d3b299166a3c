#ifndef PARLEY_TESTS_SIMULATION_SIMULATED_JOB_H_
#define PARLEY_TESTS_SIMULATION_SIMULATED_JOB_H_

#include <string>

#include "proto/job.pb.h"

namespace parley {

// The job that simulations run, as LoadJob gives it: two samples to a contribution, liveness 10 s,
// checkpoints (every 7 steps, in bounded and async every 20 s) but none at the end, and what `rest`
// says of it in the job file's language: at least the optimizer, and steps or epochs. A test fails
// where that is no job.
JobConfig SimulatedJob(const std::string& rest);

}  // namespace parley

#endif  // PARLEY_TESTS_SIMULATION_SIMULATED_JOB_H_
