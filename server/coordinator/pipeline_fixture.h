#ifndef PARLEY_SERVER_COORDINATOR_PIPELINE_FIXTURE_H_
#define PARLEY_SERVER_COORDINATOR_PIPELINE_FIXTURE_H_

// For tests of a coordinator whose workers have pipelines, or are node groups.

#include <cstdint>
#include <vector>

#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_fixture.h"

namespace parley {

// Two shards, and so many stages behind each worker.
inline CoordinatorCore::Options Pipelines(uint32_t workers, uint32_t stages,
                                          uint32_t max_restarts = 1) {
  auto options = CoordinatorFixture::DefaultOptions(2, workers);
  options.job.mutable_cluster()->set_stages(stages);
  options.job.set_max_restarts(max_restarts);
  return options;
}

// Two shards, and so many workers in node groups of `group`.
inline CoordinatorCore::Options NodeGroups(uint32_t workers, uint32_t group,
                                           uint32_t max_restarts = 1) {
  auto options = CoordinatorFixture::DefaultOptions(2, workers);
  options.job.mutable_cluster()->set_group(group);
  options.job.set_max_restarts(max_restarts);
  return options;
}

// Who stands behind each part of each contributor.
using PartMembers = std::vector<std::vector<uint64_t>>;
inline PartMembers PartMembersOf(const ClusterView& view) {
  PartMembers all;
  for (const Contributor& one : view.contributors()) {
    all.emplace_back(one.part_members().begin(), one.part_members().end());
  }
  return all;
}

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_PIPELINE_FIXTURE_H_
