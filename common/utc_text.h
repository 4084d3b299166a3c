#ifndef PARLEY_COMMON_UTC_TEXT_H_
#define PARLEY_COMMON_UTC_TEXT_H_

#include <string>

#include "absl/time/time.h"

namespace parley {

// `2026-11-21T03:00:00.123Z`, UTC: as logs, messages and files of parley tell a time.
std::string FormatUtc(absl::Time time);

// `2026-11-21T03:00:00.123Z (10.0 s)`: since when something is, and for how long.
std::string FormatSince(absl::Time since, absl::Time now);

}  // namespace parley

#endif  // PARLEY_COMMON_UTC_TEXT_H_
