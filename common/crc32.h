#ifndef PARLEY_COMMON_CRC32_H_
#define PARLEY_COMMON_CRC32_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/types/span.h"

namespace parley {

// zlib's CRC-32, by which checkpoints tell that bytes are those that were written. Pure.

// Of bytes that follow others, whose sum is `crc`; of the first ones with 0.
uint32_t Crc32(uint32_t crc, absl::Span<const std::byte> bytes);
uint32_t Crc32(uint32_t crc, std::string_view text);

// Of two stretches of bytes one after the other. second_bytes: below 2^63.
uint32_t CombineCrc32(uint32_t first, uint32_t second, uint64_t second_bytes);

// 8 hexadecimal digits, as manifests have them.
std::string Crc32Text(uint32_t crc);
bool IsCrc32Text(std::string_view text);
// Of 8 such digits.
uint32_t ParseCrc32(std::string_view text);

}  // namespace parley

#endif  // PARLEY_COMMON_CRC32_H_
