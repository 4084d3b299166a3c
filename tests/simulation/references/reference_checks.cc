// What a ReferenceSimulation checks.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/simulation/references/reference_node.h"
#include "tests/simulation/references/reference_simulation.h"

namespace parley {

void ReferenceSimulation::Break(std::string what) { broken_.push_back(std::move(what)); }

void ReferenceSimulation::OnFreed(const NodePtr& owner, const ReferenceId& id,
                                  ReferenceOwner::Why why) {
  if (!owner->process->alive()) return;
  if (why == ReferenceOwner::Why::kStepEnded) return;  // for all
  for (const NodePtr& node : nodes_) {
    if (!node->process->alive()) continue;
    for (const auto& fork : node->space->holder().UsableForks(id, node->process->LocalNow())) {
      // What is revoked may be in somebody's hands, who is refused when they use it.
      if (revoked_.contains(fork.session)) continue;
      Break(absl::StrCat(ToString(id), " was freed by ", owner->process->name(), " (",
                         static_cast<int>(why), ") while ", node->process->name(), " holds it"));
    }
  }
}

void ReferenceSimulation::CheckArguments(const NodePtr& node, const ReferenceSpace::Run& run) {
  for (const auto handle : run.arguments) {
    if (handle == 0) {
      Break(absl::StrCat(run.function, " began without an argument"));
      continue;
    }
    const ReferenceId id = node->space->IdOf(handle);
    if (!node->space->StatusOf(handle, node->process->LocalNow()).ok()) continue;
    if (node->space->IsOwn(handle)) continue;
    const auto place = node->space->PlaceOf(handle);
    for (const NodePtr& owner : nodes_) {
      if (owner->incarnation != id.owner || !owner->process->alive()) continue;
      if (revoked_.contains(place.session)) continue;
      if (owner->space->owner().Holds(place.session, place.fork)) continue;
      if (options_.scopes && !owner->space->owner().Has(id)) continue;  // its step has ended there
      Break(absl::StrCat(run.function, " began before its argument ", ToString(id),
                         " was confirmed"));
    }
  }
}

void ReferenceSimulation::CheckFetched(const NodePtr& node, const ReferenceId& id, absl::Time began,
                                       const absl::StatusOr<FetchedValue>& fetched) {
  if (!node->process->alive()) return;
  const absl::Status status = fetched.ok() ? fetched->value.status() : fetched.status();
  if (status.ok()) {
    ++counts_.fetched;
    const auto value = values_.find(id);
    if (value == values_.end() || value->second != NumberOf(*fetched->value)) {
      Break(absl::StrCat("the value of ", ToString(id), " is another one's"));
    }
    return;
  }
  ++counts_.failed;
  CheckFailure(status, "Fetch");
  // Who has lost the owner hears of it when the lease is over.
  const auto killed = killed_.find(id.owner);
  if (killed == killed_.end()) return;
  const absl::Duration waited = world_.now() - std::max(killed->second, began);
  const absl::Duration paused = node->paused;
  if (waited - paused > 1.1 * options_.lease + absl::Seconds(1)) {
    Break(absl::StrCat("a fetch of ", ToString(id), " waited for ", absl::FormatDuration(waited),
                       " for a process that is dead: ", status.ToString()));
  }
}

void ReferenceSimulation::CheckFailure(const absl::Status& status, const std::string& what) {
  const bool may_be_of_a_step =
      options_.scopes &&
      (absl::IsFailedPrecondition(status) || absl::IsNotFound(status) || absl::IsCancelled(status));
  if (options_.calm && !may_be_of_a_step) {
    Break(absl::StrCat(what, " failed without a reason: ", status.ToString()));
  }
  if (!options_.scopes && absl::StrContains(status.message(), "is not held")) {
    Break(absl::StrCat(what, ": ", status.ToString()));
  }
}

void ReferenceSimulation::CheckOnlyAnchorsAreLeft() {
  for (const NodePtr& node : nodes_) {
    const size_t values = node->space->owner().values();
    const size_t forks = node->space->holder().held();
    if (values == nodes_.size() && forks == nodes_.size()) continue;
    Break(absl::StrCat(node->process->name(), " has ", values, " values and ", forks,
                       " forks, and should have ", nodes_.size(), " of each"));
  }
}

void ReferenceSimulation::CheckOnlyLinksAreLeft() {
  for (const NodePtr& node : nodes_) {
    const size_t values = node->space->owner().values();
    const size_t forks = node->space->holder().held();
    const size_t sessions = node->space->owner().sessions();
    const size_t links = node->space->holder().links();
    if (values + forks == 0 && sessions == nodes_.size() && links == nodes_.size()) continue;
    Break(absl::StrCat(node->process->name(), " has ", values, " values, ", forks, " forks, ",
                       sessions, " sessions and ", links, " links, and should have none of the ",
                       "former and ", nodes_.size(), " of each of the latter"));
  }
}

void ReferenceSimulation::CheckNothingIsLeft() {
  for (const NodePtr& node : nodes_) {
    if (!node->process->alive()) continue;
    const ReferenceSpace& space = *node->space;
    const auto none = [&](size_t count, const char* of_what) {
      if (count != 0) Break(absl::StrCat(node->process->name(), " has ", count, " ", of_what));
    };
    none(space.owner().values(), "values left");
    none(space.owner().sessions(), "sessions left");
    none(space.owner().waiting(), "calls parked");
    none(space.owner().mended(), "forks that its holders did not know");
    none(space.holder().held(), "forks left");
    none(space.holder().links(), "links left");
    none(space.holder().open_calls(), "calls open");
    none(space.holder().mended(), "forks that their owners did not know");
    none(space.handles(), "handles left");
    none(space.arriving(), "calls that never began");
    none(static_cast<size_t>(node->running), "functions running");
    none(static_cast<size_t>(node->fetching), "fetches open");
  }
}

}  // namespace parley
