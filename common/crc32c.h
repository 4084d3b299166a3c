#ifndef PARLEY_COMMON_CRC32C_H_
#define PARLEY_COMMON_CRC32C_H_

#include <cstdint>
#include <string_view>

namespace parley {

// Castagnoli's CRC-32 (RFC 3720), by which TFRecord files tell that bytes are those that were
// written. A byte at a time, which is enough for records of a few hundred bytes. Pure.
uint32_t Crc32c(std::string_view bytes);

}  // namespace parley

#endif  // PARLEY_COMMON_CRC32C_H_
