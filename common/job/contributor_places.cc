#include "common/job/contributor_places.h"

#include <algorithm>

namespace parley {

ContributorShape ShapeOf(const Cluster& cluster) {
  return {.stages = cluster.stages(), .group = std::max(cluster.group(), uint32_t{1})};
}

uint32_t ContributorsOf(const Cluster& cluster) {
  return std::max(cluster.workers() / ShapeOf(cluster).group, uint32_t{1});
}

ContributorPart PartPlaceOf(Role role, uint32_t ordinal, const ContributorShape& shape) {
  if (role == STAGE && shape.stages != 0) {
    return {ordinal / shape.stages, 1 + ordinal % shape.stages};
  }
  return {ordinal / shape.group, ordinal % shape.group};
}

std::pair<Role, uint32_t> MemberPlaceOf(const ContributorPart& place,
                                        const ContributorShape& shape) {
  if (shape.stages != 0 && place.part != 0) {
    return {STAGE, place.contributor * shape.stages + place.part - 1};
  }
  return {WORKER, place.contributor * shape.group + place.part};
}

}  // namespace parley
