#include "client/parley/log_tail.h"

#include <algorithm>
#include <cstdint>

#include "absl/types/span.h"
#include "common/file_system.h"

namespace parley {

std::string LastLine(std::string_view text) {
  const size_t end = text.find_last_not_of(" \t\r\n");
  if (end == std::string_view::npos) return "";
  text = text.substr(0, end + 1);
  const size_t newline = text.rfind('\n');
  return std::string(newline == std::string_view::npos ? text : text.substr(newline + 1));
}

std::string LastLineOfFile(const std::string& path) {
  const auto file = PosixFileSystem()->Open(path);
  if (!file.ok()) return "";
  std::string tail(std::min<uint64_t>((*file)->size(), 64 << 10), '\0');
  if (!(*file)
           ->Read((*file)->size() - tail.size(),
                  absl::MakeSpan(reinterpret_cast<std::byte*>(tail.data()), tail.size()))
           .ok()) {
    return "";
  }
  return LastLine(tail);
}

}  // namespace parley
