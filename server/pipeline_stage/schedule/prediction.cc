#include "server/pipeline_stage/schedule/prediction.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace parley {
namespace {

class Play {
 public:
  Play(const Schedule& schedule, const PipelineCosts& costs)
      : schedule_(schedule), costs_(costs), stages_(schedule.stages.size()) {
    result_.stages.resize(schedule.stages.size());
    for (const std::vector<Action>& actions : schedule.stages) {
      for (const Action& action : actions) {
        if (action.kind == ActionKind::kUpdate) updates_[action.microbatch].open += 1;
      }
    }
  }

  absl::StatusOr<Prediction> Run() {
    // A stage is a clock of its own: the order in which they are gone through changes nothing.
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t stage = 0; stage < stages_.size(); ++stage) {
        while (stages_[stage].next < schedule_.stages[stage].size() && Step(stage)) moved = true;
      }
    }
    if (absl::Status status = AllDone(); !status.ok()) return status;
    absl::Duration busy;
    for (size_t stage = 0; stage < stages_.size(); ++stage) {
      result_.makespan = std::max(result_.makespan, stages_[stage].now);
      busy += result_.stages[stage].busy;
      result_.stages[stage].peak_bytes += BufferBytes(stage) + InputBytes(stage);
    }
    const absl::Duration all = result_.makespan * static_cast<int64_t>(stages_.size());
    result_.bubble = all > absl::ZeroDuration() ? 1 - absl::FDivDuration(busy, all) : 0;
    return std::move(result_);
  }

 private:
  struct Stage {
    size_t next = 0;  // action
    absl::Duration now;
    uint32_t live = 0;
    uint64_t live_bytes = 0;
  };
  // The messages of an edge between two parts in one direction. Each of Chimera's two pipelines has
  // its own, since its parts are on other stages. Kind of send, from, to, and the stages of the
  // two.
  using Edge = std::tuple<ActionKind, uint32_t, uint32_t, size_t, size_t>;
  struct Channel {
    std::map<uint32_t, absl::Duration> arrived;  // by microbatch
    uint32_t used = 0;                           // credits that were never given back
    std::deque<absl::Duration> returned;         // when others were
    uint32_t messages = 0;
  };

  Channel& ChannelOf(size_t stage, const Action& action) {
    const size_t other = StageOf(action.peer, action);
    if (IsSend(action.kind)) {
      return channels_[{action.kind, action.part, action.peer, stage, other}];
    }
    return channels_[{action.kind == ActionKind::kReceiveActivation ? ActionKind::kSendActivation
                                                                    : ActionKind::kSendGradient,
                      action.peer, action.part, other, stage}];
  }

  size_t StageOf(uint32_t part, const Action& action) {
    if (stage_of_.empty()) {
      for (size_t stage = 0; stage < schedule_.stages.size(); ++stage) {
        for (const Action& one : schedule_.stages[stage]) {
          if (one.kind == ActionKind::kForward) stage_of_[{one.part, one.microbatch}] = stage;
        }
      }
    }
    return stage_of_[{part, action.microbatch}];
  }

  // The next action of a stage; false if it must wait.
  bool Step(size_t stage) {
    Stage& at = stages_[stage];
    const Action& action = schedule_.stages[stage][at.next];
    if (action.kind == ActionKind::kForward && !HasWeights(stage, action.microbatch)) return false;
    if (IsCompute(action.kind)) {
      Compute(stage, action);
    } else if (action.kind == ActionKind::kUpdate) {
      StepUpdate& update = updates_[action.microbatch];
      update.open -= 1;
      update.last = std::max(update.last, at.now);
    } else if (IsSend(action.kind)) {
      if (!Send(stage, action)) return false;
    } else if (IsReceive(action.kind)) {
      Channel& channel = ChannelOf(stage, action);
      const auto arrived = channel.arrived.find(action.microbatch);
      if (arrived == channel.arrived.end()) return false;
      at.now = std::max(at.now, arrived->second);
      channel.arrived.erase(arrived);
      channel.returned.push_back(at.now + costs_.hop);
    }
    at.next += 1;
    return true;
  }

  // Those that a forward of the microbatch reads. Updates of different microbatches are of
  // different steps.
  bool HasWeights(size_t stage, uint32_t microbatch) {
    if (!costs_.delay.has_value()) return true;
    const auto step = std::distance(updates_.begin(), updates_.lower_bound(microbatch));
    if (step <= static_cast<int64_t>(*costs_.delay)) return true;
    const StepUpdate& update = std::next(updates_.begin(), step - 1 - *costs_.delay)->second;
    if (update.open > 0) return false;
    stages_[stage].now = std::max(stages_[stage].now, update.last);
    return true;
  }

  bool Send(size_t stage, const Action& action) {
    Stage& at = stages_[stage];
    const size_t to = StageOf(action.peer, action);
    Channel& channel = ChannelOf(stage, action);
    if (costs_.credits == 0) {
      const Stage& peer = stages_[to];
      if (peer.next == schedule_.stages[to].size()) return false;
      const Action& other = schedule_.stages[to][peer.next];
      const ActionKind receive = action.kind == ActionKind::kSendActivation
                                     ? ActionKind::kReceiveActivation
                                     : ActionKind::kReceiveGradient;
      if (!(other == Action{receive, action.peer, action.microbatch, action.part})) return false;
      at.now = std::max(at.now, peer.now);
    } else if (channel.used < costs_.credits) {
      channel.used += 1;
    } else {
      if (channel.returned.empty()) return false;
      at.now = std::max(at.now, channel.returned.front());
      channel.returned.pop_front();
    }
    channel.arrived[action.microbatch] = at.now + costs_.hop;
    channel.messages += 1;
    return true;
  }

  void Compute(size_t stage, const Action& action) {
    Stage& at = stages_[stage];
    StagePrediction& result = result_.stages[stage];
    const PartCost& cost = costs_.parts[action.part];
    const bool begins =
        action.kind == ActionKind::kBackward || action.kind == ActionKind::kInputGradient;
    if (begins) at.live_bytes += cost.again_bytes;
    absl::Duration took;
    switch (action.kind) {
      case ActionKind::kForward:
        took = cost.forward;
        at.live += 1;
        at.live_bytes += cost.activation_bytes;
        break;
      case ActionKind::kBackward:
        took = cost.input_gradient + cost.weight_gradient;
        break;
      case ActionKind::kInputGradient:
        took = cost.input_gradient;
        break;
      default:
        took = cost.weight_gradient;
    }
    result.timeline.push_back({action, at.now, at.now + took});
    at.now += took;
    result.busy += took;
    result.peak_activations = std::max(result.peak_activations, at.live);
    result.peak_bytes = std::max(result.peak_bytes, at.live_bytes);
    if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kWeightGradient) {
      at.live -= 1;
      at.live_bytes -= cost.activation_bytes + cost.again_bytes;
    }
  }

  uint64_t InputBytes(size_t stage) const {
    const auto& actions = schedule_.stages[stage];
    const auto count = std::count_if(actions.begin(), actions.end(), [](const Action& action) {
      return action.kind == ActionKind::kForward && action.part == 0;
    });
    return std::min(static_cast<uint64_t>(count), uint64_t{costs_.inputs}) * costs_.input_bytes;
  }

  // Of the messages that may lie at the stage, or be on their way to it.
  uint64_t BufferBytes(size_t stage) const {
    uint64_t bytes = 0;
    for (const auto& [edge, channel] : channels_) {
      const auto [kind, from, to, sender, receiver] = edge;
      if (receiver != stage) continue;
      const PartCost& maker = costs_.parts[kind == ActionKind::kSendActivation ? from : to];
      bytes += uint64_t{std::min(costs_.credits, channel.messages)} * maker.output_bytes;
    }
    return bytes;
  }

  absl::Status AllDone() const {
    std::string waits;
    for (size_t stage = 0; stage < stages_.size(); ++stage) {
      const std::vector<Action>& actions = schedule_.stages[stage];
      if (stages_[stage].next == actions.size()) continue;
      absl::StrAppend(&waits, waits.empty() ? "" : ", ", "stage ", stage, " in ",
                      ToText(actions[stages_[stage].next]));
    }
    if (waits.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "with ", costs_.credits == kUnlimited ? "any number of" : absl::StrCat(costs_.credits),
        " credits on each edge the stages wait for each other for ever: ", waits));
  }

  struct StepUpdate {
    size_t open = 0;  // not done yet, of any stage
    absl::Duration last;
  };

  const Schedule& schedule_;
  const PipelineCosts& costs_;
  std::vector<Stage> stages_;
  std::map<uint32_t, StepUpdate> updates_;  // by the last microbatch that they have
  std::map<Edge, Channel> channels_;
  std::map<std::pair<uint32_t, uint32_t>, size_t> stage_of_;  // by part and microbatch
  Prediction result_;
};

}  // namespace

absl::StatusOr<Prediction> Predict(const Schedule& schedule, const PipelineCosts& costs) {
  if (costs.parts.size() != schedule.parts) {
    return absl::InvalidArgumentError(
        absl::StrCat("costs of ", costs.parts.size(), " parts for a pipeline of ", schedule.parts));
  }
  const auto negative = [](const PartCost& cost) {
    return std::min({cost.forward, cost.input_gradient, cost.weight_gradient}) <
           absl::ZeroDuration();
  };
  if (costs.hop < absl::ZeroDuration() ||
      std::any_of(costs.parts.begin(), costs.parts.end(), negative)) {
    return absl::InvalidArgumentError("a negative time");
  }
  return Play(schedule, costs).Run();
}

}  // namespace parley
