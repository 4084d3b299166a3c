#include "common/utc_text.h"

#include "absl/strings/str_format.h"

namespace parley {

std::string FormatUtc(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
}

std::string FormatSince(absl::Time since, absl::Time now) {
  return absl::StrFormat("%s (%.1f s)", FormatUtc(since), absl::ToDoubleSeconds(now - since));
}

}  // namespace parley
