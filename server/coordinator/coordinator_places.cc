// Pipelines and node groups: which of their places wait for somebody, and who takes them
// (docs/membership.md).
#include <utility>

#include "server/coordinator/coordinator.h"
#include "server/coordinator/view_change.h"

namespace parley {

void CoordinatorCore::FillPlaces(absl::Time now) {
  if (!joint() || !InPhase({PREPARING, TRAINING}).ok()) return;
  for (int i = 0; i < view_.contributors_size(); ++i) {
    // Each place that is taken makes another view.
    for (uint32_t part = 0; part < shape().parts(); ++part) {
      const Contributor& contributor = view_.contributors(i);
      if (contributor.part_members(static_cast<int>(part)) != 0) continue;
      const ContributorPart place = {contributor.ordinal(), part};
      const std::pair<Role, uint32_t> at = MemberPlaceOf(place, shape());
      if (at.first == STAGE && finished_.has(contributor.part_members(0))) {
        // The stages of a worker that has finished have nothing left to do.
        vacancies_.erase(at);
      } else {
        FillPlace(at, now);
      }
    }
  }
}

void CoordinatorCore::RefillPlaces(absl::Time now) {
  if (joint()) return FillPlaces(now);
  for (const Caller* const holder : members_.Holders()) {
    const Member& member = holder->member;
    if (member.role() == WORKER && models_.registered(member.id())) TakeIn(*holder, now);
  }
  if (!WaitsForReplacement()) return;
  for (int i = 0; i < view_.contributors_size(); ++i) {
    const Contributor& contributor = view_.contributors(i);
    if (contributor.part_members(0) == 0) FillPlace({WORKER, contributor.ordinal()}, now);
  }
}

void CoordinatorCore::FillPlace(const std::pair<Role, uint32_t>& at, absl::Time now) {
  const Caller* const holder = members_.Holder(at.first, at.second);
  if (holder != nullptr && models_.registered(holder->member.id())) {
    vacancies_.erase(at);
    ChangeView(WithMember(view_, holder->member, shape(), progress_.step() + 1), now);
    return;
  }
  const Caller* const lost = members_.LastLost(at.first, at.second);
  if (lost == nullptr || vacancies_.count(at) != 0) return;
  Vacate(at, *lost, now);
  Change();
}

void CoordinatorCore::Vacate(const std::pair<Role, uint32_t>& place, const Caller& lost,
                             absl::Time now) {
  // The open step has waited for this place before. If the one that came was lost before it was of
  // use, that is still the same wait; after a pause or a takeover all waits begin anew.
  const auto [first, is_first] = first_vacant_.emplace(place, now);
  if (!is_first && (first->second < resumed_at_ || !HasJustCome(lost, lost.moved_at))) {
    first->second = now;
  }
  vacancies_[place] = {lost.member, lost.heard_at, first->second};
}

}  // namespace parley
