#include "server/coordinator/watchers.h"

#include <utility>

namespace parley {

SharedWatchReply ToGo(const WatchReply& state) {
  const auto told = std::make_shared<WatchReply>(state);
  told->set_drained(true);
  return told;
}

SharedWatchReply Watchers::NothingNew(const Parked& parked) const {
  const auto reply = std::make_shared<WatchReply>();
  reply->set_revision(parked.seen);
  reply->set_generation(generation_);
  return reply;
}

void Watchers::Park(uint64_t member, uint64_t seen, absl::Time deadline,
                    Done<SharedWatchReply> done, Replies& replies) {
  const auto [parked, added] = parked_.try_emplace(member);
  if (!added)
    replies.Add<SharedWatchReply>(std::move(parked->second.done), NothingNew(parked->second));
  parked->second = {seen, deadline, std::move(done)};
}

void Watchers::Tell(const SharedWatchReply& state, const std::set<uint64_t>& drained,
                    Replies& replies) {
  SharedWatchReply to_go;
  for (auto& [member, parked] : parked_) {
    const bool goes = drained.count(member) != 0;
    if (goes && to_go == nullptr) to_go = ToGo(*state);
    replies.Add<SharedWatchReply>(std::move(parked.done), goes ? to_go : state);
  }
  parked_.clear();
}

void Watchers::Expire(absl::Time now, Replies& replies) {
  for (auto it = parked_.begin(); it != parked_.end();) {
    if (it->second.deadline > now) {
      ++it;
      continue;
    }
    replies.Add<SharedWatchReply>(std::move(it->second.done), NothingNew(it->second));
    it = parked_.erase(it);
  }
}

void Watchers::Refuse(uint64_t member, const absl::Status& status, Replies& replies) {
  const auto found = parked_.find(member);
  if (found == parked_.end()) return;
  replies.Add<SharedWatchReply>(std::move(found->second.done), status);
  parked_.erase(found);
}

}  // namespace parley
