#include "server/pipeline_stage/schedule/one_f_one_b.h"

#include <algorithm>

namespace parley {

std::vector<Action> OneForwardOneBackward(const std::vector<Action>& forwards,
                                          const std::vector<Action>& backwards,
                                          uint64_t forwards_first) {
  auto forward =
      forwards.begin() + static_cast<int64_t>(std::min<uint64_t>(forwards_first, forwards.size()));
  std::vector<Action> actions(forwards.begin(), forward);
  for (const Action& backward : backwards) {
    if (forward != forwards.end()) actions.push_back(*forward++);
    actions.push_back(backward);
  }
  return actions;
}

}  // namespace parley
