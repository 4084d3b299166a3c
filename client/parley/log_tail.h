#ifndef PARLEY_CLIENT_PARLEY_LOG_TAIL_H_
#define PARLEY_CLIENT_PARLEY_LOG_TAIL_H_

#include <string>
#include <string_view>

namespace parley {

// The last line that is not blank; empty if there is none.
std::string LastLine(std::string_view text);

// The same of a file, as far as it lies in its last 64 KiB; empty where it cannot be read.
std::string LastLineOfFile(const std::string& path);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_LOG_TAIL_H_
