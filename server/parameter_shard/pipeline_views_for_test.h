#ifndef PARLEY_SERVER_PARAMETER_SHARD_PIPELINE_VIEWS_FOR_TEST_H_
#define PARLEY_SERVER_PARAMETER_SHARD_PIPELINE_VIEWS_FOR_TEST_H_

#include <cstdint>
#include <vector>

#include "proto/types.pb.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {

// Contributors that are pipelines of two stages.
inline constexpr uint32_t kStages = 2;

// Slices 0 and 1 are those of stage 0 and 1, 2 is tied, 3 is the first stage's buffer.
inline const std::vector<std::vector<uint32_t>> kPartsOfSlice = {{1}, {2}, {1, 2}, {1}};

// MeanJob, of such contributors.
inline JobConfig PipelineJob() {
  JobConfig job = MeanJob();
  job.mutable_cluster()->set_stages(kStages);
  return job;
}

inline uint64_t StageId(uint32_t ordinal) { return 51 + ordinal; }

inline void AddStage(ClusterView& view, uint32_t ordinal, uint64_t id) {
  Member& member = *view.add_members();
  member.set_id(id);
  member.set_role(STAGE);
  member.set_ordinal(ordinal);
  member.set_incarnation(1000 + id);
  member.set_address("10.0.2.1:1");
}

inline ClusterView PipelineView(uint32_t shards, uint32_t workers) {
  ClusterView view =
      MakeView({.tensors = {{"first", 2}, {"last", 2}, {"tied", 2}, {"seen", 2, /*buffer=*/true}},
                .shards = shards,
                .workers = workers});
  for (uint32_t ordinal = 0; ordinal < workers * kStages; ++ordinal) {
    AddStage(view, ordinal, StageId(ordinal));
    view.mutable_contributors(static_cast<int>(ordinal / kStages))
        ->add_part_members(StageId(ordinal));
  }
  for (Slice& slice : *view.mutable_slices()) {
    for (uint32_t contributor = 0; contributor < workers; ++contributor) {
      for (const uint32_t number : kPartsOfSlice[slice.id()]) {
        SlicePart& part = *slice.add_parts();
        part.set_contributor(contributor);
        part.set_part(number);
        part.set_end(2);
      }
    }
  }
  return view;
}

// The next view: the stage `id` has the part, or nobody where it is 0.
inline ClusterView WithPart(ClusterView view, uint32_t contributor, uint32_t part, uint64_t id) {
  view.set_view_epoch(view.view_epoch() + 1);
  Contributor& found = *view.mutable_contributors(static_cast<int>(contributor));
  const uint64_t former = found.part_members(static_cast<int>(part));
  for (int i = 0; i < view.members_size(); ++i) {
    if (former == 0 || view.members(i).id() != former) continue;
    view.mutable_members()->DeleteSubrange(i, 1);
    break;
  }
  found.set_part_members(static_cast<int>(part), id);
  found.set_attempt(static_cast<uint32_t>(view.view_epoch()));
  if (id != 0) AddStage(view, contributor * kStages + part - 1, id);
  return view;
}

}  // namespace parley::testing

#endif  // PARLEY_SERVER_PARAMETER_SHARD_PIPELINE_VIEWS_FOR_TEST_H_
