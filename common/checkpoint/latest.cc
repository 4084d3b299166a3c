#include "common/checkpoint/latest.h"

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/crc32.h"

namespace parley {
namespace {

constexpr char kAdvice[] = "; write the name of the folder that you want into it, as its only line";

absl::string_view Stripped(std::string_view text) {
  return absl::StripAsciiWhitespace(absl::string_view(text.data(), text.size()));
}

std::string SumLine(std::string_view folder) {
  return absl::StrCat("crc32 ", Crc32Text(Crc32(0, folder)));
}

}  // namespace

std::string FormatLatest(std::string_view folder) {
  return absl::StrCat(absl::string_view(folder.data(), folder.size()), "\n", SumLine(folder), "\n");
}

absl::StatusOr<std::string> ParseLatest(std::string_view content) {
  const size_t end = content.find('\n');
  if (end == std::string_view::npos) {
    return absl::DataLossError(absl::StrCat("is damaged: its first line ends at byte ",
                                            content.size(), " without an end of line", kAdvice));
  }
  std::string name(Stripped(content.substr(0, end)));
  const absl::string_view sum = Stripped(content.substr(end));
  if (!sum.empty() && sum != SumLine(name)) {
    return absl::DataLossError(absl::StrCat("is damaged: it says '", absl::CHexEscape(sum),
                                            "' where '", absl::CHexEscape(name), "' has ",
                                            SumLine(name), kAdvice));
  }
  if (!IsPlainName(name)) {
    return absl::InvalidArgumentError(absl::StrCat("names '", absl::CHexEscape(name),
                                                   "', which is no folder beside it", kAdvice));
  }
  return name;
}

bool IsPlainName(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0\n", 3)) == std::string_view::npos;
}

}  // namespace parley
