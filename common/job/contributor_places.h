#ifndef PARLEY_COMMON_JOB_CONTRIBUTOR_PLACES_H_
#define PARLEY_COMMON_JOB_CONTRIBUTOR_PLACES_H_

#include <cstdint>
#include <utility>

#include "proto/job.pb.h"
#include "proto/types.pb.h"

namespace parley {

// Which process of a job is which part of which contributor: pure functions, the same in every
// process. A contributor is
//   - a worker alone: worker C is part 0 of contributor C;
//   - a pipeline: the same, and part 1 + S is its stage S, which is stage C * stages + S of the
//   job;
//   - a node group: its rank R, part R, is worker C * group + R.

// Of each role, at most: more than anybody has, and few enough that no process is asked to hold a
// table of billions.
inline constexpr uint32_t kMostMembers = 4096;

// The processes behind each contributor of a job.
struct ContributorShape {
  uint32_t stages = 0;  // of a pipeline; 0: there are none
  uint32_t group = 1;   // ranks of a node group; 1: there are none

  uint32_t parts() const { return stages != 0 ? 1 + stages : group; }
};

ContributorShape ShapeOf(const Cluster& cluster);

// How many contributors cluster.workers are.
uint32_t ContributorsOf(const Cluster& cluster);

// A contributor and a part of it.
struct ContributorPart {
  uint32_t contributor = 0;
  uint32_t part = 0;
};

// Of a worker or stage.
ContributorPart PartPlaceOf(Role role, uint32_t ordinal, const ContributorShape& shape);

// Role and ordinal of who sends the part.
std::pair<Role, uint32_t> MemberPlaceOf(const ContributorPart& place,
                                        const ContributorShape& shape);

}  // namespace parley

#endif  // PARLEY_COMMON_JOB_CONTRIBUTOR_PLACES_H_
