#include "server/pipeline_stage/schedule/check.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace parley {
namespace {

// Goes through the stages one after the other; each error names the place it has come to.
class Checker {
 public:
  Checker(const Schedule& schedule, const std::vector<PartEdge>& edges)
      : schedule_(schedule), before_(schedule.parts), behind_(schedule.parts), edges_(edges) {}

  absl::Status Run() {
    for (const PartEdge& edge : edges_) {
      if (edge.from >= edge.to || edge.to >= schedule_.parts) {
        return absl::InvalidArgumentError(
            absl::StrCat("the model has no edge from part ", edge.from, " to part ", edge.to));
      }
      behind_[edge.from].push_back(edge.to);
      before_[edge.to].push_back(edge.from);
    }
    for (size_t stage = 0; stage < schedule_.stages.size(); ++stage) {
      for (const Action& action : schedule_.stages[stage]) {
        if (action.part >= schedule_.parts || action.microbatch >= schedule_.microbatches) {
          return Wrong(stage, action, "the pipeline has no such part or microbatch");
        }
        if (action.kind == ActionKind::kForward &&
            !stage_of_.emplace(std::pair(action.part, action.microbatch), stage).second) {
          return Wrong(stage, action, "it is there twice");
        }
      }
    }
    if (stage_of_.size() != uint64_t{schedule_.parts} * schedule_.microbatches) {
      return absl::InvalidArgumentError(
          absl::StrCat("of ", uint64_t{schedule_.parts} * schedule_.microbatches,
                       " forwards the schedule has ", stage_of_.size()));
    }
    for (size_t stage = 0; stage < schedule_.stages.size(); ++stage) {
      done_.clear();
      whole_until_.clear();
      for (const Action& action : schedule_.stages[stage]) {
        if (absl::Status status = Next(stage, action); !status.ok()) return status;
      }
      if (absl::Status status = EndOf(stage); !status.ok()) return status;
    }
    if (!sent_.empty()) {
      const auto [kind, from, to, microbatch] = *sent_.begin();
      return absl::InvalidArgumentError(absl::StrCat("a message is sent or received only: ",
                                                     ToText({kind, from, microbatch, to})));
    }
    return absl::OkStatus();
  }

 private:
  using Message = std::tuple<ActionKind, uint32_t, uint32_t, uint32_t>;  // kind of send, from, to

  static absl::Status Wrong(size_t stage, const Action& action, absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("stage ", stage, ", ", ToText(action), ": ", what));
  }

  bool Has(ActionKind kind, uint32_t part, uint32_t microbatch, uint32_t peer = 0) const {
    return done_.count({kind, part, microbatch, peer}) > 0;
  }

  absl::Status Next(size_t stage, const Action& action) {
    const uint32_t part = action.part, k = action.microbatch;
    if (stage_of_[{part, k}] != stage)
      return Wrong(stage, action, "its forward is on another stage");
    if (!done_.insert({action.kind, part, k, IsCompute(action.kind) ? 0 : action.peer}).second) {
      return Wrong(stage, action, "it is there twice");
    }
    switch (action.kind) {
      case ActionKind::kForward:
        return Takes(stage, action, before_[part], ActionKind::kForward,
                     ActionKind::kReceiveActivation);
      case ActionKind::kBackward:
      case ActionKind::kInputGradient: {
        if (!Has(ActionKind::kForward, part, k)) return Wrong(stage, action, "before its forward");
        const bool whole = action.kind == ActionKind::kBackward;
        if (Has(whole ? ActionKind::kInputGradient : ActionKind::kBackward, part, k)) {
          return Wrong(stage, action, "after another backward of the same microbatch");
        }
        return Takes(stage, action, behind_[part], ActionKind::kInputGradient,
                     ActionKind::kReceiveGradient);
      }
      case ActionKind::kWeightGradient:
        if (!Has(ActionKind::kInputGradient, part, k)) {
          return Wrong(stage, action, "before the input gradient");
        }
        return absl::OkStatus();
      case ActionKind::kSendActivation:
        if (!Has(ActionKind::kForward, part, k)) return Wrong(stage, action, "before its forward");
        return Pair(stage, action, {ActionKind::kSendActivation, part, action.peer, k});
      case ActionKind::kSendGradient:
        if (!Back(part, k)) return Wrong(stage, action, "before its backward");
        return Pair(stage, action, {ActionKind::kSendGradient, part, action.peer, k});
      case ActionKind::kReceiveActivation:
        return Pair(stage, action, {ActionKind::kSendActivation, action.peer, part, k});
      case ActionKind::kReceiveGradient:
        return Pair(stage, action, {ActionKind::kSendGradient, action.peer, part, k});
      case ActionKind::kUpdate:
        // It has the gradients of all microbatches up to this one.
        for (uint32_t& until = whole_until_[part]; until <= k; ++until) {
          if (stage_of_[{part, until}] == stage && !Whole(part, until)) {
            return Wrong(stage, action,
                         until == k ? "before the backward of its microbatch"
                                    : "before the backward of an earlier microbatch");
          }
        }
        return absl::OkStatus();
    }
    return Wrong(stage, action, "no such kind");
  }

  // Whether what the part before waits for is there.
  bool Back(uint32_t part, uint32_t k) const {
    return Has(ActionKind::kBackward, part, k) || Has(ActionKind::kInputGradient, part, k);
  }
  bool Whole(uint32_t part, uint32_t k) const {
    return Has(ActionKind::kBackward, part, k) || Has(ActionKind::kWeightGradient, part, k);
  }

  // What comes from the peers is there: made on this stage, or received.
  absl::Status Takes(size_t stage, const Action& action, const std::vector<uint32_t>& peers,
                     ActionKind made, ActionKind received) {
    for (uint32_t peer : peers) {
      const bool here = stage_of_[{peer, action.microbatch}] == stage;
      const bool there = !here ? Has(received, action.part, action.microbatch, peer)
                         : made == ActionKind::kForward ? Has(made, peer, action.microbatch)
                                                        : Back(peer, action.microbatch);
      if (!there) return Wrong(stage, action, absl::StrCat("before what part ", peer, " gives it"));
    }
    return absl::OkStatus();
  }

  // Each message is met twice, once where it is sent and once where it is received.
  absl::Status Pair(size_t stage, const Action& action, const Message& message) {
    const auto [kind, from, to, microbatch] = message;
    const std::vector<uint32_t>& peers =
        kind == ActionKind::kSendActivation ? behind_[action.part] : before_[action.part];
    const std::vector<uint32_t>& receivers =
        kind == ActionKind::kSendActivation ? before_[action.part] : behind_[action.part];
    bool known = false;
    for (uint32_t peer : IsSend(action.kind) ? peers : receivers) known |= peer == action.peer;
    if (!known || stage_of_[{action.peer, microbatch}] == stage) {
      return Wrong(stage, action, "nothing travels between these parts");
    }
    if (!sent_.insert(message).second) sent_.erase(message);
    return absl::OkStatus();
  }

  absl::Status EndOf(size_t stage) {
    std::map<uint32_t, int64_t> updated;  // by part: the last microbatch that an update has
    for (const auto& [kind, part, k, peer] : done_) {
      if (kind != ActionKind::kUpdate) continue;
      int64_t& last = updated.try_emplace(part, -1).first->second;
      last = std::max<int64_t>(last, k);
    }
    for (const auto& [place, on] : stage_of_) {
      if (on != stage) continue;
      const auto [part, k] = place;
      if (!Whole(part, k)) {
        return Wrong(stage, {ActionKind::kForward, part, k}, "without a whole backward");
      }
      const auto last = updated.find(part);
      if (last == updated.end() || last->second < k) {
        return Wrong(stage, {ActionKind::kForward, part, k}, "no update has its gradient");
      }
    }
    return absl::OkStatus();
  }

  const Schedule& schedule_;
  std::vector<std::vector<uint32_t>> before_, behind_;  // by part: where it has edges from, and to
  const std::vector<PartEdge>& edges_;
  std::map<std::pair<uint32_t, uint32_t>, size_t> stage_of_;  // by part and microbatch
  // Of the stage that is looked at: kind, part, microbatch, peer.
  std::set<std::tuple<ActionKind, uint32_t, uint32_t, uint32_t>> done_;
  std::map<uint32_t, uint32_t> whole_until_;  // by part: no microbatch before it has to come
  std::set<Message> sent_;                    // met once so far
};

}  // namespace

absl::Status CheckSchedule(const Schedule& schedule, const std::vector<PartEdge>& edges) {
  return Checker(schedule, edges).Run();
}

}  // namespace parley
