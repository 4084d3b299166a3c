#include "server/coordinator/watchers.h"

#include <utility>

namespace parley {

SharedJobState ToGo(const WatchReply& state) {
  const auto told = std::make_shared<WatchReply>(state);
  told->set_drained(true);
  return told;
}

SharedJobState Watchers::NothingNew(const Parked& parked) const {
  const auto reply = std::make_shared<WatchReply>();
  reply->set_revision(parked.seen);
  reply->set_generation(generation_);
  return reply;
}

void Watchers::Park(uint64_t member, uint64_t seen, absl::Time deadline, Done<SharedJobState> done,
                    Replies& replies) {
  const auto [parked, added] = parked_.try_emplace(member);
  if (!added)
    replies.Add<SharedJobState>(std::move(parked->second.done), NothingNew(parked->second));
  parked->second = {seen, deadline, std::move(done)};
}

void Watchers::Tell(const SharedJobState& state, const std::set<uint64_t>& drained,
                    Replies& replies) {
  SharedJobState to_go;
  for (auto& [member, parked] : parked_) {
    const bool goes = drained.count(member) != 0;
    if (goes && to_go == nullptr) to_go = ToGo(*state);
    replies.Add<SharedJobState>(std::move(parked.done), goes ? to_go : state);
  }
  parked_.clear();
}

void Watchers::Expire(absl::Time now, Replies& replies) {
  for (auto it = parked_.begin(); it != parked_.end();) {
    if (it->second.deadline > now) {
      ++it;
      continue;
    }
    replies.Add<SharedJobState>(std::move(it->second.done), NothingNew(it->second));
    it = parked_.erase(it);
  }
}

void Watchers::Refuse(uint64_t member, const absl::Status& status, Replies& replies) {
  const auto found = parked_.find(member);
  if (found == parked_.end()) return;
  replies.Add<SharedJobState>(std::move(found->second.done), status);
  parked_.erase(found);
}

}  // namespace parley
