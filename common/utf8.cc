#include "common/utf8.h"

namespace parley {
namespace {

constexpr absl::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

// Bytes of the character that `text` begins with; 0 where it begins with none.
size_t CharacterBytes(absl::string_view text) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = at(0);
  if (first < 0x80) return 1;
  const size_t bytes = first >= 0xc2 && first <= 0xdf   ? 2
                       : first >= 0xe0 && first <= 0xef ? 3
                       : first >= 0xf0 && first <= 0xf4 ? 4
                                                        : 0;
  if (bytes == 0 || text.size() < bytes) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
  }
  // Longer than needed; halves of UTF-16's pairs; beyond U+10FFFF.
  const unsigned char second = at(1);
  if (first == 0xe0 && second < 0xa0) return 0;
  if (first == 0xed && second > 0x9f) return 0;
  if (first == 0xf0 && second < 0x90) return 0;
  if (first == 0xf4 && second > 0x8f) return 0;
  return bytes;
}

}  // namespace

std::optional<size_t> FirstInvalidUtf8(absl::string_view text) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t bytes = CharacterBytes(text.substr(begin));
    if (bytes == 0) return begin;
    begin += bytes;
  }
  return std::nullopt;
}

std::string ValidUtf8(absl::string_view text, size_t most_bytes) {
  std::string valid;
  while (!text.empty() && valid.size() < most_bytes) {
    const size_t good = FirstInvalidUtf8(text).value_or(text.size());
    valid.append(text.data(), good);
    text.remove_prefix(good);
    if (text.empty()) break;
    valid.append(kReplacement.data(), kReplacement.size());
    text.remove_prefix(1);
  }
  if (valid.size() <= most_bytes) return valid;
  size_t end = most_bytes;
  while (end > 0 && (static_cast<unsigned char>(valid[end]) & 0xc0) == 0x80) --end;
  valid.resize(end);
  return valid;
}

}  // namespace parley
