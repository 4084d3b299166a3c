#ifndef PARLEY_SERVER_COORDINATOR_VIEW_CHANGE_H_
#define PARLEY_SERVER_COORDINATOR_VIEW_CHANGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/job/contributor_places.h"
#include "proto/types.pb.h"

namespace parley {

// Pure functions of a view and its changes (docs/membership.md). A view that comes after another
// has the next view_epoch, can govern steps from `first_step` on, and is alike in all else.

// Whether the member stands behind a contributor.
bool TakesPart(const ClusterView& view, uint64_t member);

// The worker of the pipeline whose stage the member is; 0 if there is none.
uint64_t WorkerOf(const ClusterView& view, uint64_t member);

// How many workers stand, or are to stand, behind the contributors.
uint32_t WorkersOf(const ClusterView& view, const ContributorShape& shape);

// The contributors behind all parts of which somebody stands.
uint32_t LiveContributors(const ClusterView& view);

// After a worker or stage was lost. Its contributor goes, or, with `keep_place`, stays with nobody
// behind that part of it until a replacement comes.
ClusterView WithoutMember(const ClusterView& view, uint64_t member, bool keep_place,
                          uint64_t first_step);

// With a worker or stage behind its part of its contributor, which nobody else has.
ClusterView WithMember(const ClusterView& view, const Member& member, const ContributorShape& shape,
                       uint64_t first_step);

// After shards were lost, or replaced: all begin anew from a checkpoint. `present`: the members
// that there are, the shards' new ones among them. A worker or stage that stands behind a
// contributor stays there.
ClusterView RolledBack(const ClusterView& view, const std::vector<Member>& present,
                       uint64_t job_epoch, const std::string& start_from, uint64_t version,
                       const DataPosition& position);

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_VIEW_CHANGE_H_
