#include "server/coordinator/view_change.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace parley {
namespace {

bool Stands(const Contributor& contributor, uint64_t member) {
  return std::count(contributor.part_members().begin(), contributor.part_members().end(), member) !=
         0;
}

// Nobody has id 0.
bool IsLive(const Contributor& contributor) { return !Stands(contributor, 0); }

ClusterView Next(const ClusterView& view, uint64_t first_step) {
  ClusterView next = view;
  next.set_view_epoch(view.view_epoch() + 1);
  next.set_first_step(std::max(view.first_step(), first_step));
  return next;
}

// By role, then ordinal.
void SortMembers(ClusterView& view) {
  std::sort(view.mutable_members()->begin(), view.mutable_members()->end(),
            [](const Member& a, const Member& b) {
              return std::tuple(a.role(), a.ordinal()) < std::tuple(b.role(), b.ordinal());
            });
}

}  // namespace

bool TakesPart(const ClusterView& view, uint64_t member) {
  return std::any_of(view.contributors().begin(), view.contributors().end(),
                     [&](const Contributor& one) { return Stands(one, member); });
}

uint64_t WorkerOf(const ClusterView& view, uint64_t member) {
  for (const Contributor& one : view.contributors()) {
    if (Stands(one, member)) return one.part_members(0);
  }
  return 0;
}

uint32_t WorkersOf(const ClusterView& view, const ContributorShape& shape) {
  return static_cast<uint32_t>(view.contributors_size()) * shape.group;
}

uint32_t LiveContributors(const ClusterView& view) {
  return std::count_if(view.contributors().begin(), view.contributors().end(), IsLive);
}

ClusterView WithoutMember(const ClusterView& view, uint64_t member, bool keep_place,
                          uint64_t first_step) {
  ClusterView next = Next(view, first_step);
  next.clear_members();
  for (const Member& one : view.members()) {
    if (one.id() != member) *next.add_members() = one;
  }
  next.clear_contributors();
  for (const Contributor& one : view.contributors()) {
    const bool lost = Stands(one, member);
    if (lost && !keep_place) continue;
    Contributor* contributor = next.add_contributors();
    *contributor = one;
    if (!lost) continue;
    std::replace(contributor->mutable_part_members()->begin(),
                 contributor->mutable_part_members()->end(), member, uint64_t{0});
    // What the others of its pipeline or node group have computed with it counts no more.
    if (one.part_members_size() > 1) {
      contributor->set_attempt(static_cast<uint32_t>(next.view_epoch()));
    }
  }
  return next;
}

ClusterView WithMember(const ClusterView& view, const Member& member, const ContributorShape& shape,
                       uint64_t first_step) {
  ClusterView next = Next(view, first_step);
  *next.add_members() = member;
  SortMembers(next);
  const ContributorPart place = PartPlaceOf(member.role(), member.ordinal(), shape);
  Contributor* contributor = nullptr;
  for (Contributor& one : *next.mutable_contributors()) {
    if (one.ordinal() == place.contributor) contributor = &one;
  }
  if (contributor == nullptr) {
    contributor = next.add_contributors();
    contributor->set_ordinal(place.contributor);
    contributor->mutable_part_members()->Resize(static_cast<int>(shape.parts()), 0);
  }
  contributor->set_part_members(static_cast<int>(place.part), member.id());
  contributor->set_attempt(static_cast<uint32_t>(next.view_epoch()));
  std::sort(next.mutable_contributors()->begin(), next.mutable_contributors()->end(),
            [](const Contributor& a, const Contributor& b) { return a.ordinal() < b.ordinal(); });
  return next;
}

ClusterView RolledBack(const ClusterView& view, const std::vector<Member>& present,
                       uint64_t job_epoch, const std::string& start_from, uint64_t version,
                       const DataPosition& position) {
  ClusterView next = view;
  next.set_job_epoch(job_epoch);
  next.set_view_epoch(view.view_epoch() + 1);
  next.set_first_step(version + 1);
  next.set_start_from(start_from);
  next.set_start_version(version);
  *next.mutable_data_position() = position;
  next.clear_members();
  for (const Member& member : view.members()) {
    if (member.role() != SHARD) *next.add_members() = member;
  }
  for (const Member& member : present) {
    if (member.role() == SHARD) *next.add_members() = member;
  }
  SortMembers(next);
  return next;
}

}  // namespace parley
