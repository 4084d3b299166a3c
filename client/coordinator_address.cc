#include "client/coordinator_address.h"

#include <cstdint>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace parley {
namespace {

constexpr std::string_view kFilePrefix = "file:";

bool IsAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  uint32_t port = 0;
  return colon != std::string::npos && colon > 0 &&
         absl::SimpleAtoi(text.substr(colon + 1), &port) && port > 0 && port <= 65535 &&
         text.find_first_of(" \t") == std::string::npos;
}

}  // namespace

absl::StatusOr<std::string> ResolveCoordinator(FileSystem& files, const std::string& option) {
  if (option.compare(0, kFilePrefix.size(), kFilePrefix) != 0) {
    if (IsAddress(option)) return option;
    return absl::InvalidArgumentError(absl::StrCat(
        "'", option, "' is no address of a coordinator: HOST:PORT or file:PATH is expected"));
  }
  const std::string path = option.substr(kFilePrefix.size());
  absl::StatusOr<std::string> content = ReadWholeFile(files, path, /*limit=*/4096);
  if (!content.ok()) {
    const std::string folder = path.substr(0, path.find_last_of('/') + 1);
    return absl::UnavailableError(absl::StrCat(
        "the coordinator's address file cannot be read (so far): ", content.status().message(),
        absl::IsNotFound(content.status())
            ? absl::StrCat("; the job has not begun, or is over: the last line of ", folder,
                           "history.jsonl says how it ended")
            : ""));
  }
  std::string line(absl::StripAsciiWhitespace(content->substr(0, content->find('\n'))));
  if (line.empty()) {
    return absl::UnavailableError(
        absl::StrCat("the coordinator's address file ", path, " is empty so far"));
  }
  if (IsAddress(line)) return line;
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": '", line, "' is no HOST:PORT; is it the coordinator's address file?"));
}

}  // namespace parley
