#include "server/pipeline_stage/schedule/chimera.h"

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <utility>

namespace parley {
namespace {

constexpr uint64_t kForwardTime = 1, kBackwardTime = 2;

// The two pipelines, while time goes on.
class TwoPipelines {
 public:
  TwoPipelines(uint32_t stages, uint32_t microbatches)
      : stages_(stages),
        first_{0, (microbatches + 1) / 2},
        counts_{(microbatches + 1) / 2, microbatches / 2},
        progress_(stages),
        free_at_(stages, 0),
        schedule_(stages),
        room_(stages) {
    for (uint32_t direction : {0, 1}) {
      ends_[direction].assign(2 * size_t{stages} * counts_[direction], kNever);
    }
  }

  std::vector<std::vector<Action>> Run() {
    uint64_t remaining = 2 * uint64_t{stages_} * (counts_[0] + counts_[1]);
    for (uint64_t now = 0; remaining > 0; ++now) {
      bool works = false;
      for (uint32_t stage = 0; stage < stages_; ++stage) {
        if (free_at_[stage] <= now && Begin(stage, now)) remaining -= 1;
        works |= free_at_[stage] > now;
      }
      // Were each stage to wait for another one's memory, they had to have more.
      if (!works) room_ += 1;
    }
    return std::move(schedule_);
  }

 private:
  static constexpr uint64_t kNever = UINT64_MAX;
  static constexpr uint32_t kDown = 0, kUp = 1;

  struct Progress {
    std::array<uint32_t, 2> forwards = {0, 0}, backwards = {0, 0};  // by direction
    uint32_t live(uint32_t direction) const { return forwards[direction] - backwards[direction]; }
  };

  // When the `index`th microbatch of a direction has ended its forward or backward in a part.
  uint64_t& End(uint32_t direction, bool backward, uint32_t part, uint32_t index) {
    return ends_[direction][(size_t{part} * counts_[direction] + index) * 2 + (backward ? 1 : 0)];
  }

  // Begins the first in order of what can begin on the stage, if anything can.
  bool Begin(uint32_t stage, uint64_t now) {
    Progress& progress = progress_[stage];
    // Forwards first, then the earlier microbatch, then the later part.
    using Order = std::tuple<bool, uint32_t, uint32_t>;
    std::optional<std::pair<Order, uint32_t>> best;
    for (uint32_t direction : {kDown, kUp}) {
      const uint32_t part = direction == kDown ? stage : stages_ - 1 - stage;
      for (bool backward : {false, true}) {
        if (!CanBegin(progress, direction, part, backward, now)) continue;
        const uint32_t index =
            backward ? progress.backwards[direction] : progress.forwards[direction];
        const std::pair<Order, uint32_t> one{{backward, index, stages_ - part}, direction};
        if (!best.has_value() || one < *best) best = one;
      }
    }
    if (!best.has_value()) return false;
    const auto [order, direction] = *best;
    const auto [backward, index, from_end] = order;
    const uint32_t part = stages_ - from_end;
    free_at_[stage] = now + (backward ? kBackwardTime : kForwardTime);
    End(direction, backward, part, index) = free_at_[stage];
    (backward ? progress.backwards : progress.forwards)[direction] += 1;
    schedule_[stage].push_back(
        {backward ? ActionKind::kBackward : ActionKind::kForward, part, first_[direction] + index});
    return true;
  }

  bool CanBegin(const Progress& progress, uint32_t direction, uint32_t part, bool backward,
                uint64_t now) {
    if (backward) {
      const uint32_t index = progress.backwards[direction];
      if (index >= progress.forwards[direction]) return false;
      return part + 1 == stages_ ? End(direction, false, part, index) <= now
                                 : End(direction, true, part + 1, index) <= now;
    }
    const uint32_t index = progress.forwards[direction];
    if (index >= counts_[direction]) return false;
    if (progress.live(direction) >= stages_ - part) return false;
    if (progress.live(kDown) + progress.live(kUp) >= room_) return false;
    return part == 0 || End(direction, false, part - 1, index) <= now;
  }

  const uint32_t stages_;
  const std::array<uint32_t, 2> first_, counts_;  // microbatches, by direction
  std::array<std::vector<uint64_t>, 2> ends_;
  std::vector<Progress> progress_;  // by stage, as the next two
  std::vector<uint64_t> free_at_;
  std::vector<std::vector<Action>> schedule_;
  uint32_t room_;  // of each stage, for microbatches under way
};

}  // namespace

std::vector<std::vector<Action>> Chimera(uint32_t stages, uint32_t microbatches) {
  return TwoPipelines(stages, microbatches).Run();
}

}  // namespace parley
