#ifndef PARLEY_COMMON_JOB_SLURM_CHECK_H_
#define PARLEY_COMMON_JOB_SLURM_CHECK_H_

#include <string_view>

#include "absl/functional/function_ref.h"
#include "proto/job.pb.h"

namespace parley {

// What is wrong with what a job asks Slurm for: `require` gets each condition, with the field and
// what to say where it does not hold.
void CheckSlurm(
    const Slurm& slurm,
    absl::FunctionRef<void(bool right, std::string_view field, std::string_view problem)> require);

}  // namespace parley

#endif  // PARLEY_COMMON_JOB_SLURM_CHECK_H_
