#ifndef PARLEY_CLIENT_PARLEY_DOCTOR_SYSTEM_FILES_H_
#define PARLEY_CLIENT_PARLEY_DOCTOR_SYSTEM_FILES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace parley {

// The files in which the system tells how it is set up: those of /proc and /sys, which have no size
// beforehand. `root`: what stands for /, where a test has its own.
class SystemFiles {
 public:
  explicit SystemFiles(std::string root = "") : root_(std::move(root)) {}

  // The content without white space at its ends; nothing where it cannot be read.
  std::optional<std::string> Text(const std::string& path) const;

  // The numbers at its begin, until something else comes: none where it says "max", or cannot be
  // read.
  std::vector<uint64_t> Numbers(const std::string& path) const;
  std::optional<uint64_t> Number(const std::string& path) const;

  // The names in a folder, sorted; none where it cannot be read.
  std::vector<std::string> List(const std::string& path) const;

 private:
  std::string root_;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_DOCTOR_SYSTEM_FILES_H_
