#ifndef PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_LONGEST_PATH_FOR_TEST_H_
#define PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_LONGEST_PATH_FOR_TEST_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "server/pipeline_stage/schedule/prediction.h"

namespace parley {

// How long a schedule without messages takes on a chain of parts with any number of credits, in
// another way than Predict: as the longest path through what must come before what.
class LongestPath {
 public:
  LongestPath(const Schedule& schedule, const PipelineCosts& costs)
      : costs_(costs), parts_(schedule.parts), microbatches_(schedule.microbatches) {
    const size_t nodes = size_t{4} * parts_ * microbatches_;
    nodes_.resize(nodes);
    for (size_t stage = 0; stage < schedule.stages.size(); ++stage) {
      int64_t previous = -1;
      for (const Action& action : schedule.stages[stage]) {
        if (!IsCompute(action.kind)) continue;
        const int64_t id = Id(action.kind, action.part, action.microbatch);
        nodes_[id] = {action, stage, previous, true};
        previous = id;
      }
    }
  }

  // With the order of each stage, or as if each part of each microbatch had a machine of its own.
  absl::Duration Run(bool with_order) {
    with_order_ = with_order;
    ends_.assign(nodes_.size(), absl::InfiniteDuration());
    absl::Duration last;
    for (size_t id = 0; id < nodes_.size(); ++id) {
      if (nodes_[id].there) last = std::max(last, End(static_cast<int64_t>(id)));
    }
    return last;
  }

 private:
  struct Node {
    Action action;
    size_t stage = 0;
    int64_t previous = -1;
    bool there = false;
  };

  int64_t Id(ActionKind kind, uint32_t part, uint32_t microbatch) const {
    return (static_cast<int64_t>(kind) * parts_ + part) * microbatches_ + microbatch;
  }

  absl::Duration End(int64_t id) {
    if (ends_[id] != absl::InfiniteDuration()) return ends_[id];
    const Node& node = nodes_[id];
    const uint32_t part = node.action.part, k = node.action.microbatch;
    absl::Duration begin;
    const auto after = [&](ActionKind kind, uint32_t of) {
      const int64_t other = Id(kind, of, k);
      if (!nodes_[other].there) return;
      begin = std::max(begin, End(other) + (nodes_[other].stage == node.stage ? absl::ZeroDuration()
                                                                              : costs_.hop));
    };
    if (with_order_ && node.previous >= 0) begin = End(node.previous);
    const PartCost& cost = costs_.parts[part];
    absl::Duration took = cost.forward;
    if (node.action.kind == ActionKind::kForward) {
      if (part > 0) after(ActionKind::kForward, part - 1);
    } else if (node.action.kind == ActionKind::kWeightGradient) {
      after(ActionKind::kInputGradient, part);
      took = cost.weight_gradient;
    } else {
      after(ActionKind::kForward, part);
      if (part + 1 < parts_) {
        after(ActionKind::kBackward, part + 1);
        after(ActionKind::kInputGradient, part + 1);
      }
      took = cost.input_gradient;
      if (node.action.kind == ActionKind::kBackward) took += cost.weight_gradient;
    }
    return ends_[id] = begin + took;
  }

  const PipelineCosts& costs_;
  const uint32_t parts_, microbatches_;
  std::vector<Node> nodes_;
  std::vector<absl::Duration> ends_;
  bool with_order_ = true;
};

}  // namespace parley

#endif  // PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_LONGEST_PATH_FOR_TEST_H_
