#ifndef PARLEY_COMMON_HOST_NAME_H_
#define PARLEY_COMMON_HOST_NAME_H_

#include <string>

namespace parley {

// Of this machine, for people; `localhost` where it has none.
std::string HostName();

// Of this machine since it was started: two processes that find the same one share a kernel, in
// whatever containers. Empty: not known.
std::string BootId();

}  // namespace parley

#endif  // PARLEY_COMMON_HOST_NAME_H_
