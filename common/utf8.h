#ifndef PARLEY_COMMON_UTF8_H_
#define PARLEY_COMMON_UTF8_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace parley {

// Where the first byte lies that is not UTF-8 (RFC 3629); none where all is.
std::optional<size_t> FirstInvalidUtf8(absl::string_view text);

// The text as a string of a message can have it, which nobody could read with other bytes in it:
// each byte that is not UTF-8 becomes U+FFFD, and what is longer than most_bytes is cut where a
// character begins.
std::string ValidUtf8(absl::string_view text, size_t most_bytes);

// So long are texts of one process that many print: room for all tensors of a model that does not
// match, and no more than a message and a record bear.
inline constexpr size_t kMostReasonBytes = 16 << 10;

}  // namespace parley

#endif  // PARLEY_COMMON_UTF8_H_
