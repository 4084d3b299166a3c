#include "client/parley/doctor/system_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"

namespace parley {

std::optional<std::string> SystemFiles::Text(const std::string& path) const {
  std::ifstream file(root_ + path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  if (file.bad()) return std::nullopt;
  return std::string(absl::StripAsciiWhitespace(text.str()));
}

std::vector<uint64_t> SystemFiles::Numbers(const std::string& path) const {
  std::istringstream words(Text(path).value_or(""));
  std::vector<uint64_t> numbers;
  uint64_t number = 0;
  // A stream would read -1 as the largest one.
  for (std::string word; words >> word && absl::SimpleAtoi(word, &number);) {
    numbers.push_back(number);
  }
  return numbers;
}

std::optional<uint64_t> SystemFiles::Number(const std::string& path) const {
  const std::vector<uint64_t> numbers = Numbers(path);
  if (numbers.empty()) return std::nullopt;
  return numbers.front();
}

std::vector<std::string> SystemFiles::List(const std::string& path) const {
  std::error_code error;
  std::vector<std::string> names;
  std::filesystem::directory_iterator entry(root_ + path, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace parley
