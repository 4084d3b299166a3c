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

}  // namespace

bool TakesPart(const ClusterView& view, uint64_t member) {
  return std::any_of(view.contributors().begin(), view.contributors().end(),
                     [&](const Contributor& one) { return Stands(one, member); });
}

uint32_t LiveContributors(const ClusterView& view) {
  return std::count_if(view.contributors().begin(), view.contributors().end(), IsLive);
}

ClusterView WithoutWorker(const ClusterView& view, uint64_t member, bool keep_place,
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
  }
  return next;
}

ClusterView WithWorker(const ClusterView& view, const Member& worker, uint64_t first_step) {
  ClusterView next = Next(view, first_step);
  *next.add_members() = worker;
  // By role, then ordinal; contributors by ordinal.
  std::sort(next.mutable_members()->begin(), next.mutable_members()->end(),
            [](const Member& a, const Member& b) {
              return std::tuple(a.role(), a.ordinal()) < std::tuple(b.role(), b.ordinal());
            });
  next.clear_contributors();
  for (const Contributor& one : view.contributors()) {
    if (one.ordinal() != worker.ordinal()) *next.add_contributors() = one;
  }
  Contributor* contributor = next.add_contributors();
  contributor->set_ordinal(worker.ordinal());
  contributor->add_part_members(worker.id());
  contributor->set_attempt(static_cast<uint32_t>(next.view_epoch()));
  std::sort(next.mutable_contributors()->begin(), next.mutable_contributors()->end(),
            [](const Contributor& a, const Contributor& b) { return a.ordinal() < b.ordinal(); });
  return next;
}

}  // namespace parley
