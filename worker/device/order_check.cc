#include "worker/device/order_check.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace parley {
namespace {

std::string ActorName(size_t actor) {
  return actor == OrderCheck::kHost
             ? "the host"
             : absl::StrCat("stream [", StreamName(static_cast<StreamId>(actor)), "]");
}

bool Overlap(Range a, Range b) { return a.begin < b.end() && b.begin < a.end(); }

bool Contains(Range a, Range b) { return a.begin <= b.begin && b.end() <= a.end(); }

}  // namespace

void OrderCheck::Add(Range memory, const std::string& what, bool pinned) {
  memory_[memory.begin] = {memory, what, pinned, {}};
}

void OrderCheck::Remove(const std::byte* begin) {
  const auto found = memory_.find(begin);
  if (found == memory_.end()) return;
  // Whoever comes after has other memory: all uses must be over.
  UseRange(kHost, "freeing it", found->second.range, true);
  memory_.erase(found);
}

void OrderCheck::Use(size_t actor, const std::string& what, const std::vector<Range>& reads,
                     const std::vector<Range>& writes) {
  if (actor != kHost) Join(actor, clocks_[kHost]);
  ++clocks_[actor][actor];
  for (const Range& range : reads) UseRange(actor, what, range, false);
  for (const Range& range : writes) UseRange(actor, what, range, true);
}

OrderCheck::Clock OrderCheck::Record(size_t stream) {
  Join(stream, clocks_[kHost]);
  return clocks_[stream];
}

void OrderCheck::Join(size_t actor, const Clock& clock) {
  for (size_t i = 0; i < clock.size(); ++i) {
    clocks_[actor][i] = std::max(clocks_[actor][i], clock[i]);
  }
}

void OrderCheck::Say(std::string violation) {
  // A loop says the same thing again and again.
  if (std::find(violations_.begin(), violations_.end(), violation) != violations_.end()) return;
  violations_.push_back(std::move(violation));
}

OrderCheck::Memory* OrderCheck::Find(Range range) {
  auto after = memory_.upper_bound(range.begin);
  if (after == memory_.begin()) return nullptr;
  Memory& memory = std::prev(after)->second;
  return Contains(memory.range, range) ? &memory : nullptr;
}

void OrderCheck::UseRange(size_t actor, const std::string& what, Range range, bool writes) {
  if (range.bytes == 0) return;
  Memory* const memory = Find(range);
  if (memory == nullptr && ignores_other_memory_) return;
  if (memory == nullptr) {
    Say(absl::StrCat(ActorName(actor), ", ", what, ": memory that the device has not given out"));
    return;
  }
  if (actor == kHost && !memory->pinned && what != "freeing it") {
    Say(absl::StrCat("the host uses the device's memory [", memory->what, "]"));
  }
  for (const Past& past : memory->past) {
    if (!Overlap(past.range, range) || (!past.writes && !writes)) continue;
    if (clocks_[actor][past.actor] >= past.time) continue;
    Say(absl::StrCat(ActorName(actor), ", ", what, ", ", writes ? "writes" : "reads", " [",
                     memory->what, "] which ", ActorName(past.actor), ", ", past.what, ", still ",
                     past.writes ? "writes" : "reads"));
  }
  // What comes after this one comes after all that is over before it, too.
  const auto over = [&](const Past& past) {
    return (writes || !past.writes) && Contains(range, past.range) &&
           clocks_[actor][past.actor] >= past.time;
  };
  memory->past.erase(std::remove_if(memory->past.begin(), memory->past.end(), over),
                     memory->past.end());
  memory->past.push_back({range, writes, actor, clocks_[actor][actor], what});
}

}  // namespace parley
