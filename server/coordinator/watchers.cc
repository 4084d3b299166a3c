#include "server/coordinator/watchers.h"

#include <utility>

namespace parley {

WatchReply Watchers::NothingNew(const Parked& parked) const {
  WatchReply reply;
  reply.set_revision(parked.seen);
  reply.set_generation(generation_);
  return reply;
}

void Watchers::Park(uint64_t member, uint64_t seen, absl::Time deadline, Done<WatchReply> done,
                    Replies& replies) {
  const auto [parked, added] = parked_.try_emplace(member);
  if (!added) replies.Add<WatchReply>(std::move(parked->second.done), NothingNew(parked->second));
  parked->second = {seen, deadline, std::move(done)};
}

void Watchers::Tell(const WatchReply& state, const std::set<uint64_t>& drained, Replies& replies) {
  for (auto& [member, parked] : parked_) {
    WatchReply told = state;
    told.set_drained(drained.count(member) != 0);
    replies.Add<WatchReply>(std::move(parked.done), std::move(told));
  }
  parked_.clear();
}

void Watchers::Expire(absl::Time now, Replies& replies) {
  for (auto it = parked_.begin(); it != parked_.end();) {
    if (it->second.deadline > now) {
      ++it;
      continue;
    }
    replies.Add<WatchReply>(std::move(it->second.done), NothingNew(it->second));
    it = parked_.erase(it);
  }
}

void Watchers::Refuse(uint64_t member, const absl::Status& status, Replies& replies) {
  const auto found = parked_.find(member);
  if (found == parked_.end()) return;
  replies.Add<WatchReply>(std::move(found->second.done), status);
  parked_.erase(found);
}

}  // namespace parley
