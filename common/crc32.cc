#include "common/crc32.h"

#include <libdeflate.h>
#include <zlib.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"

namespace parley {

uint32_t Crc32(uint32_t crc, absl::Span<const std::byte> bytes) {
  if (bytes.empty()) return crc;  // it starts anew where it gets a null pointer
  return libdeflate_crc32(crc, bytes.data(), bytes.size());
}

uint32_t Crc32(uint32_t crc, std::string_view text) {
  return Crc32(crc,
               absl::MakeConstSpan(reinterpret_cast<const std::byte*>(text.data()), text.size()));
}

uint32_t CombineCrc32(uint32_t first, uint32_t second, uint64_t second_bytes) {
  return static_cast<uint32_t>(crc32_combine(first, second, static_cast<z_off_t>(second_bytes)));
}

std::string Crc32Text(uint32_t crc) { return absl::StrFormat("%08x", crc); }

bool IsCrc32Text(std::string_view text) {
  for (const char c : text) {
    if (!absl::ascii_isdigit(c) && (c < 'a' || c > 'f')) return false;
  }
  return text.size() == 8;
}

uint32_t ParseCrc32(std::string_view text) {
  uint32_t crc = 0;
  for (const char c : text) {
    crc = crc << 4 | static_cast<uint32_t>(absl::ascii_isdigit(c) ? c - '0' : c - 'a' + 10);
  }
  return crc;
}

}  // namespace parley
