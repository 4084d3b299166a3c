#include "client/parley/programs.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace parley {

absl::StatusOr<std::string> SiblingProgram(const std::string& name) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return absl::NotFoundError("/proc/self/exe cannot be read: where am I?");
  const std::string path = (self.parent_path() / name).string();
  if (access(path.c_str(), X_OK) != 0) {
    return absl::NotFoundError(absl::StrCat(
        path, " is not there or not executable; deploy/build lays all programs into one folder"));
  }
  return path;
}

}  // namespace parley
