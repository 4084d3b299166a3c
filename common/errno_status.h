#ifndef PARLEY_COMMON_ERRNO_STATUS_H_
#define PARLEY_COMMON_ERRNO_STATUS_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace parley {

// "PATH: WHAT: the system's reason", with the codes that FileSystem (file_system.h) promises.
absl::Status ErrnoStatus(int error, std::string_view what, const std::string& path);

}  // namespace parley

#endif  // PARLEY_COMMON_ERRNO_STATUS_H_
