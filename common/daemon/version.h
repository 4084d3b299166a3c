#ifndef PARLEY_COMMON_DAEMON_VERSION_H_
#define PARLEY_COMMON_DAEMON_VERSION_H_

namespace parley {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace parley

#endif  // PARLEY_COMMON_DAEMON_VERSION_H_
