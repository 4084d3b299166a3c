#ifndef PARLEY_CLIENT_PARLEY_UNITS_H_
#define PARLEY_CLIENT_PARLEY_UNITS_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace parley {

// For people: "42 s", "3:05", "2:03:05".
std::string DurationText(absl::Duration duration);

// "812 B", "1.50 KiB", "594 MiB".
std::string BytesText(uint64_t bytes);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_UNITS_H_
