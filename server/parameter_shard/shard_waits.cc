// Shard: what it waits for, and whom.
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/contributor_places.h"
#include "common/job/data_division.h"
#include "server/parameter_shard/shard.h"

namespace parley {
namespace {

WaitedFor Place(Role role, uint32_t ordinal) {
  WaitedFor place;
  place.set_role(role);
  place.set_ordinal(ordinal);
  return place;
}

// Who sends the part; where nobody does now, whoever takes that place.
WaitedFor SenderPlace(const JobConfig& job, const Routing& routing, uint32_t contributor,
                      uint32_t part) {
  const Member* const sender = routing.FindMember(routing.SenderOf(contributor, part));
  if (sender != nullptr) return Place(sender->role(), sender->ordinal());
  const auto [role, ordinal] = MemberPlaceOf({contributor, part}, ShapeOf(job.cluster()));
  return Place(role, ordinal);
}

}  // namespace

std::vector<Wait> Shard::Waits(absl::Time now) const {
  std::vector<Wait> waits;
  if (stopped_ || cause_.has_value() || error_.has_value()) return waits;
  const auto add = [&](std::string what, std::vector<WaitedFor> on) {
    Wait& wait = waits.emplace_back();
    wait.set_what(std::move(what));
    wait.set_seconds(std::max(0.0, absl::ToDoubleSeconds(now - opened_)));
    wait.set_step(version_ + 1);
    wait.mutable_on()->Assign(on.begin(), on.end());
  };
  if (routing_ == nullptr) {
    add("the view: who takes part, and which slices lie here", {Place(COORDINATOR, 0)});
    waits.back().clear_step();
    waits.back().set_seconds(0);
    return waits;
  }
  const ClusterView& view = routing_->view();
  if (!ready()) {
    const std::string slices = absl::StrCat(" of ", slices_not_set().size(), " slices");
    if (view.start_from().empty()) {
      add(absl::StrCat("the start values", slices), InitializersMissing());
    } else {
      add(absl::StrCat("loading the start values", slices, " from ", view.start_from()), {});
    }
    return waits;
  }
  if (clocked_ != nullptr) return ClockedWaits(now);
  // A job that counts epochs may take more steps than the view says, where workers were lost.
  const bool all_decided =
      gate_.has_value()
          ? (job_.has_steps() || job_.has_epochs()) && IsDone(job_, decided_.position(), version_)
          : view.total_steps() != 0 && version_ >= view.total_steps();
  if (all_decided) {
    add("the end of the job: all steps are decided", {Place(COORDINATOR, 0)});
    waits.back().set_step(version_);
    return waits;
  }
  const std::string step = absl::StrCat("step ", version_ + 1, " attempt ", attempt_);
  if (gate_.has_value()) {
    // Closing: Outgoing knows which shard has not answered.
    if (gate_->closing()) return waits;
    std::vector<WaitedFor> on;
    for (const auto& [contributor, part] : gate_->MissingParts()) {
      on.push_back(SenderPlace(job_, *routing_, contributor, part));
    }
    add(absl::StrCat("the end of ", step, " (Complete); parked here: ", completes_.size(),
                     " Complete, ", enters_.size(), " Enter, ", pulls_.size(), " Pull"),
        std::move(on));
    return waits;
  }
  std::vector<WaitedFor> senders = SendersWithoutPush();
  if (!senders.empty()) add(absl::StrCat("gradients of ", step), std::move(senders));
  add(absl::StrCat("the verdict of ", step, "; parked here: ", pulls_.size(), " Pull"),
      {Place(SHARD, view.step_leader())});
  return waits;
}

// In bounded and async nobody waits for a step; calls are parked for the floor, a barrier, or
// samples.
std::vector<Wait> Shard::ClockedWaits(absl::Time now) const {
  std::vector<Wait> waits;
  const bool leads = clocked_->gate.has_value();
  if (completes_.empty() && enters_.empty() && pulls_.empty() &&
      !(leads && clocked_->gate->barrier().has_value())) {
    return waits;
  }
  Wait& wait = waits.emplace_back();
  wait.set_seconds(std::max(0.0, absl::ToDoubleSeconds(now - clocked_->since)));
  const std::string parked = absl::StrCat("; parked here: ", completes_.size(), " Complete, ",
                                          enters_.size(), " Enter, ", pulls_.size(), " Pull");
  if (!leads) {
    wait.set_what(absl::StrCat("clocks above ", clocked_->floor, parked));
    *wait.add_on() = Place(SHARD, routing_->view().step_leader());
    return waits;
  }
  const ClockGate& gate = *clocked_->gate;
  wait.set_step(gate.version());
  if (gate.barrier().has_value()) {
    wait.set_what(absl::StrCat("all shards to name version ", *gate.barrier(), parked));
    for (const Member& member : routing_->view().members()) {
      if (member.role() != SHARD || clocked_->acknowledged.count(member.ordinal()) != 0) continue;
      *wait.add_on() = Place(SHARD, member.ordinal());
    }
    return waits;
  }
  wait.set_what(absl::StrCat("workers at the floor, clock ", gate.floor(), parked));
  for (const ClockGate::AtWork& one : gate.at_work()) {
    // Parked pulls wait for the slowest ones, those without samples for all.
    if (completes_.empty() && enters_.empty() && one.completed > gate.floor()) continue;
    *wait.add_on() = SenderPlace(job_, *routing_, one.contributor, 0);
  }
  return waits;
}

// The worker of contributor 0, its rank 0, or the first stage of its pipeline that has the slice.
std::vector<WaitedFor> Shard::InitializersMissing() const {
  std::set<uint32_t> parts;
  for (const uint32_t slice : slices_not_set()) {
    const absl::Span<const PartRange> all = routing_->PartsOf(slice);
    const bool here = job_.cluster().group() <= 1 && !all.empty() && all.front().contributor == 0;
    parts.insert(here ? all.front().part : 0);
  }
  std::vector<WaitedFor> missing;
  for (const uint32_t part : parts) missing.push_back(SenderPlace(job_, *routing_, 0, part));
  return missing;
}

std::vector<WaitedFor> Shard::SendersWithoutPush() const {
  std::set<std::pair<uint32_t, uint32_t>> parts;
  for (const auto& [id, slice] : table_->slices()) {
    for (const PartRange& part : open_view().PartsOf(id)) {
      // Those that have left since may count or not: the step leader says.
      if (routing_->FindContributor(part.contributor) == nullptr) continue;
      if (!slice.Has(part.contributor, part.part)) parts.emplace(part.contributor, part.part);
    }
  }
  std::vector<WaitedFor> senders;
  for (const auto& [contributor, part] : parts) {
    senders.push_back(SenderPlace(job_, *routing_, contributor, part));
  }
  return senders;
}

}  // namespace parley
