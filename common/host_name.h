#ifndef PARLEY_COMMON_HOST_NAME_H_
#define PARLEY_COMMON_HOST_NAME_H_

#include <string>

namespace parley {

// Of this machine, for people; `localhost` where it has none.
std::string HostName();

}  // namespace parley

#endif  // PARLEY_COMMON_HOST_NAME_H_
