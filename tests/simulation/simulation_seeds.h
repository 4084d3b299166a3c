#ifndef PARLEY_TESTS_SIMULATION_SIMULATION_SEEDS_H_
#define PARLEY_TESTS_SIMULATION_SIMULATION_SEEDS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/simulation/job_simulation.h"
#include "tests/simulation/seed_flags.h"

namespace parley {

// Which seeds each kind of job runs; main sets it from its flags.
SeedRange& Seeds();

// Runs the seeds, of which `options` makes the job and the faults, and prints what happened: how
// often each fault met each state, which must be so for all that can be, if there are enough seeds.
// What is `expected` must have happened at least once then.
void RunSeeds(const std::function<JobSimulation::Options(uint64_t seed)>& options,
              const std::vector<std::string>& expected = {});

// Messages are lost, late and doubled, processes stop for a while, clocks drift.
JobSimulation::Options WithNetworkFaults(const JobConfig& job);

// Also the coordinator dies, comes back, is stopped, cut off and doubled, and its disk fails.
JobSimulation::Options WithCoordinatorFaults(const JobConfig& job);
// What happens then (JobSimulation::happened).
std::vector<std::string> CoordinatorFaults();

}  // namespace parley

#endif  // PARLEY_TESTS_SIMULATION_SIMULATION_SEEDS_H_
