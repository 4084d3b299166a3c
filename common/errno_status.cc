#include "common/errno_status.h"

#include <cerrno>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace parley {

absl::Status ErrnoStatus(int error, std::string_view what, const std::string& path) {
  const std::string message = absl::StrCat(path, ": ", absl::string_view(what.data(), what.size()),
                                           ": ", std::generic_category().message(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case EEXIST:
      return absl::AlreadyExistsError(message);
    case ENOSPC:
    case EDQUOT:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::UnavailableError(message);
  }
}

}  // namespace parley
