#include "server/pipeline_stage/schedule/schedules.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/pipeline_stage/schedule/chimera.h"
#include "server/pipeline_stage/schedule/interleaved.h"
#include "server/pipeline_stage/schedule/one_f_one_b.h"

namespace parley {
namespace {

std::vector<Action> AllOf(ActionKind kind, uint32_t part, uint32_t microbatches) {
  std::vector<Action> actions;
  for (uint32_t k = 0; k < microbatches; ++k) actions.push_back({kind, part, k});
  return actions;
}

std::vector<Action> Flushed(uint32_t stage, uint32_t microbatches, uint64_t forwards_first) {
  return OneForwardOneBackward(AllOf(ActionKind::kForward, stage, microbatches),
                               AllOf(ActionKind::kBackward, stage, microbatches), forwards_first);
}

// As 1F1B, but a stage's weight gradients stay behind by as many microbatches as stages are before
// it: when its last backwards wait for those of the stages behind, it has something to do.
std::vector<Action> ZeroBubble(uint32_t stage, uint32_t stages, uint32_t microbatches) {
  const std::vector<Action> order = OneForwardOneBackward(
      AllOf(ActionKind::kForward, stage, microbatches),
      AllOf(ActionKind::kInputGradient, stage, microbatches), stages - 1 - stage);
  std::vector<Action> actions;
  uint32_t next = 0;
  for (const Action& action : order) {
    actions.push_back(action);
    if (action.kind == ActionKind::kInputGradient && action.microbatch >= next + stage) {
      actions.push_back({ActionKind::kWeightGradient, stage, next++});
    }
  }
  for (; next < microbatches; ++next) {
    actions.push_back({ActionKind::kWeightGradient, stage, next});
  }
  return actions;
}

// With an update behind each microbatch that ends `accumulate` of them, and behind the last one.
std::vector<Action> WithUpdates(const std::vector<Action>& actions, uint32_t microbatches,
                                uint32_t accumulate) {
  std::vector<Action> updated;
  for (const Action& action : actions) {
    updated.push_back(action);
    if (action.kind != ActionKind::kBackward) continue;
    const uint32_t done = action.microbatch + 1;
    if (done % accumulate == 0 || done == microbatches) {
      updated.push_back({ActionKind::kUpdate, action.part, action.microbatch});
    }
  }
  return updated;
}

// With an update of each of the stage's parts behind all, which has its last microbatch here.
std::vector<Action> WithOneUpdate(std::vector<Action> actions) {
  std::map<uint32_t, uint32_t> last;  // microbatch of a part
  for (const Action& action : actions) {
    last[action.part] = std::max(last[action.part], action.microbatch);
  }
  for (const auto& [part, microbatch] : last) {
    actions.push_back({ActionKind::kUpdate, part, microbatch});
  }
  return actions;
}

std::vector<Action> OfStage(const ScheduleSpec& spec, uint32_t stage) {
  const uint32_t n = spec.microbatches;
  const uint32_t behind = spec.stages - 1 - stage;
  switch (spec.kind) {
    case ScheduleKind::kGpipe:
      return Flushed(stage, n, n);
    case ScheduleKind::kEagerOneFOneB:
      return Flushed(stage, n, behind + std::min(behind, spec.forwards_ahead));
    case ScheduleKind::kZeroBubble:
      return ZeroBubble(stage, spec.stages, n);
    case ScheduleKind::kPipeDream:
      return WithUpdates(Flushed(stage, n, behind), n, 1);
    case ScheduleKind::kTwoBufferWeights:
      return WithUpdates(Flushed(stage, n, behind), n, spec.accumulate);
    default:
      return Flushed(stage, n, behind);
  }
}

}  // namespace

absl::string_view NameOf(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::kGpipe:
      return "gpipe";
    case ScheduleKind::kOneFOneB:
      return "1f1b";
    case ScheduleKind::kEagerOneFOneB:
      return "eager";
    case ScheduleKind::kInterleaved:
      return "interleaved";
    case ScheduleKind::kZeroBubble:
      return "zb-h1";
    case ScheduleKind::kChimera:
      return "chimera";
    case ScheduleKind::kPipeDream:
      return "pipedream";
    case ScheduleKind::kTwoBufferWeights:
      return "2bw";
  }
  return "?";
}

const std::vector<ScheduleKind>& AllSchedules() {
  static const auto* const all = new std::vector<ScheduleKind>{
      ScheduleKind::kGpipe,       ScheduleKind::kOneFOneB,        ScheduleKind::kEagerOneFOneB,
      ScheduleKind::kInterleaved, ScheduleKind::kZeroBubble,      ScheduleKind::kChimera,
      ScheduleKind::kPipeDream,   ScheduleKind::kTwoBufferWeights};
  return *all;
}

absl::StatusOr<Schedule> MakeSchedule(const ScheduleSpec& spec) {
  if (spec.stages == 0 || spec.microbatches == 0 || spec.parts_per_stage == 0 ||
      spec.accumulate == 0) {
    return absl::InvalidArgumentError(
        "a pipeline needs a stage, a microbatch, a part on each stage and a microbatch of an "
        "update");
  }
  if (spec.parts_per_stage != 1 && spec.kind != ScheduleKind::kInterleaved) {
    return absl::InvalidArgumentError(absl::StrCat(
        "only `interleaved` has more than one part on a stage, not `", NameOf(spec.kind), "`"));
  }
  const uint64_t work = uint64_t{spec.stages} * spec.parts_per_stage;
  if (work > kMostParts || work * spec.microbatches > kMostWork) {
    return absl::InvalidArgumentError(
        absl::StrCat(spec.stages, " stages with ", spec.parts_per_stage, " parts each and ",
                     spec.microbatches, " microbatches are more than a schedule can have"));
  }
  Schedule schedule;
  schedule.parts = static_cast<uint32_t>(work);
  schedule.microbatches = spec.microbatches;
  if (spec.kind == ScheduleKind::kChimera) {
    schedule.stages = Chimera(spec.stages, spec.microbatches);
  } else if (spec.kind == ScheduleKind::kInterleaved) {
    schedule.stages = Interleaved(spec.stages, spec.microbatches, spec.parts_per_stage);
  } else {
    for (uint32_t stage = 0; stage < spec.stages; ++stage) {
      schedule.stages.push_back(OfStage(spec, stage));
    }
  }
  if (spec.kind != ScheduleKind::kPipeDream && spec.kind != ScheduleKind::kTwoBufferWeights) {
    for (std::vector<Action>& actions : schedule.stages) {
      actions = WithOneUpdate(std::move(actions));
    }
  }
  return schedule;
}

uint32_t CreditsNeeded(const ScheduleSpec& spec) {
  if (spec.kind == ScheduleKind::kInterleaved && spec.parts_per_stage > 1) {
    const uint32_t largest = InterleavedGroups(spec.stages, spec.microbatches).front();
    return largest > spec.stages ? largest - spec.stages + 1 : 1;
  }
  return spec.kind == ScheduleKind::kChimera ? 2 : 1;
}

std::optional<uint32_t> DelayOf(const ScheduleSpec& spec) {
  if (spec.kind == ScheduleKind::kTwoBufferWeights) return 1;
  if (spec.kind == ScheduleKind::kPipeDream) return spec.stages;
  return std::nullopt;
}

Schedule WithMessages(const Schedule& schedule, const std::vector<PartEdge>& edges) {
  std::map<std::pair<uint32_t, uint32_t>, size_t> stage_of;  // by part and microbatch
  for (size_t stage = 0; stage < schedule.stages.size(); ++stage) {
    for (const Action& action : schedule.stages[stage]) {
      if (action.kind == ActionKind::kForward) {
        stage_of[{action.part, action.microbatch}] = stage;
      }
    }
  }
  // By part: those that it has an input from, and those that it gives its output to.
  std::vector<std::vector<uint32_t>> before(schedule.parts), behind(schedule.parts);
  for (const PartEdge& edge : edges) {
    behind[edge.from].push_back(edge.to);
    before[edge.to].push_back(edge.from);
  }
  Schedule result = schedule;
  for (size_t stage = 0; stage < schedule.stages.size(); ++stage) {
    std::vector<Action>& actions = result.stages[stage];
    actions.clear();
    const auto messages = [&](ActionKind kind, const Action& of,
                              const std::vector<uint32_t>& peers) {
      for (uint32_t peer : peers) {
        if (stage_of[{peer, of.microbatch}] == stage) continue;
        actions.push_back({kind, of.part, of.microbatch, peer});
      }
    };
    for (const Action& action : schedule.stages[stage]) {
      if (action.kind == ActionKind::kForward) {
        messages(ActionKind::kReceiveActivation, action, before[action.part]);
        actions.push_back(action);
        messages(ActionKind::kSendActivation, action, behind[action.part]);
      } else if (action.kind == ActionKind::kBackward ||
                 action.kind == ActionKind::kInputGradient) {
        messages(ActionKind::kReceiveGradient, action, behind[action.part]);
        actions.push_back(action);
        messages(ActionKind::kSendGradient, action, before[action.part]);
      } else {
        actions.push_back(action);
      }
    }
  }
  return result;
}

}  // namespace parley
