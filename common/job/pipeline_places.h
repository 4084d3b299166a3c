#ifndef PARLEY_COMMON_JOB_PIPELINE_PLACES_H_
#define PARLEY_COMMON_JOB_PIPELINE_PLACES_H_

#include <cstdint>
#include <utility>

#include "proto/types.pb.h"

namespace parley {

// Which process of a job is which part of which contributor: pure functions, the same in every
// process. `stages` is cluster.stages. Part 0 of contributor C is worker C, and part 1 + S its
// pipeline's stage S, which is stage C * stages + S of the job.

// A contributor and a part of it.
struct PartPlace {
  uint32_t contributor = 0;
  uint32_t part = 0;
};

// Of a worker or stage.
PartPlace PartPlaceOf(Role role, uint32_t ordinal, uint32_t stages);

// Role and ordinal of who sends the part.
std::pair<Role, uint32_t> MemberPlaceOf(const PartPlace& place, uint32_t stages);

}  // namespace parley

#endif  // PARLEY_COMMON_JOB_PIPELINE_PLACES_H_
