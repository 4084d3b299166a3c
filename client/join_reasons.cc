#include "client/join_reasons.h"

#include <algorithm>
#include <cstddef>

namespace parley {
namespace {

constexpr absl::Duration kAgain = absl::Minutes(10);
// Reasons with a number or a time in them would be new each time: no more lines than this come
// within ten minutes.
constexpr size_t kMost = 20;

}  // namespace

bool JoinReasons::IsNews(absl::string_view reason, absl::Time now) {
  while (!told_.empty() && now >= told_.front().at + kAgain) told_.pop_front();
  const bool is_known = std::any_of(told_.begin(), told_.end(),
                                    [&](const Told& told) { return told.reason == reason; });
  if (is_known || told_.size() == kMost) return false;
  told_.push_back({std::string(reason), now});
  return true;
}

}  // namespace parley
