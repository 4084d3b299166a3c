#include "client/newest_state.h"

#include <algorithm>
#include <utility>

namespace parley {

bool NewestState::Hear(const SharedJobState& state) {
  absl::MutexLock lock(&mu_);
  heard_ = state;
  return std::exchange(to_take_, state) == nullptr;
}

SharedJobState NewestState::Take() {
  absl::MutexLock lock(&mu_);
  return std::exchange(to_take_, nullptr);
}

void NewestState::End() {
  absl::MutexLock lock(&mu_);
  ended_ = true;
}

bool NewestState::Stands(uint64_t job_epoch, uint32_t contributor, uint64_t composition) const {
  SharedJobState state;
  {
    absl::MutexLock lock(&mu_);
    if (ended_) return false;
    state = heard_;
  }
  if (state == nullptr || !state->has_view()) return true;
  if (state->phase() == FINISHED || state->view().job_epoch() != job_epoch) return false;
  for (const Contributor& one : state->view().contributors()) {
    if (one.ordinal() != contributor) continue;
    const auto& members = one.part_members();
    return one.attempt() == composition &&
           std::count(members.begin(), members.end(), uint64_t{0}) == 0;
  }
  return false;
}

}  // namespace parley
