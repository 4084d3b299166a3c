#include "common/rpc/recent_visitors.h"

#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace parley {
namespace {

constexpr size_t kMostKept = 256;
constexpr size_t kMostNamed = 4;

}  // namespace

void RecentVisitors::Came(std::string peer, absl::Time now) {
  absl::MutexLock lock(&mu_);
  visitors_.push_back({std::move(peer), now});
  if (visitors_.size() > kMostKept) visitors_.pop_front();
}

std::string RecentVisitors::Who(absl::Time now) const {
  absl::MutexLock lock(&mu_);
  std::vector<std::string> named;
  size_t others = 0;
  for (auto visitor = visitors_.rbegin(); visitor != visitors_.rend(); ++visitor) {
    if (visitor->came < now - recent_) break;
    if (named.size() < kMostNamed) {
      named.push_back(visitor->peer);
    } else {
      ++others;
    }
  }
  if (named.size() < 2) return absl::StrJoin(named, "");
  return absl::StrCat("one of ", absl::StrJoin(named, ", "),
                      others == 0 ? "" : absl::StrCat(" and ", others, " others"));
}

}  // namespace parley
