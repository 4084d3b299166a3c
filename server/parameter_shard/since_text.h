#ifndef PARLEY_SERVER_PARAMETER_SHARD_SINCE_TEXT_H_
#define PARLEY_SERVER_PARAMETER_SHARD_SINCE_TEXT_H_

#include <string>

#include "absl/strings/str_format.h"
#include "common/utc_text.h"

namespace parley {

// ` (since T, 10.0 s)`, behind what a shard waits for.
inline std::string SinceText(absl::Time since, absl::Time now) {
  return absl::StrFormat(" (since %s, %.1f s)", FormatUtc(since),
                         absl::ToDoubleSeconds(now - since));
}

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_SINCE_TEXT_H_
