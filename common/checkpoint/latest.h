#ifndef PARLEY_COMMON_CHECKPOINT_LATEST_H_
#define PARLEY_COMMON_CHECKPOINT_LATEST_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace parley {

// The file `latest`: a line with the name of a step's folder, and a line with the sum of that name.
// Without it a changed digit could name an older checkpoint, which is whole too. Pure.
std::string FormatLatest(std::string_view folder);

// The name. One line alone is as an earlier release, or somebody by hand, has written it. DataLoss
// where the sum is wrong or the first line does not end; InvalidArgument where there is no name of
// a folder beside this file.
absl::StatusOr<std::string> ParseLatest(std::string_view content);

// A name of something in a folder, and no way out of it.
bool IsPlainName(std::string_view name);

}  // namespace parley

#endif  // PARLEY_COMMON_CHECKPOINT_LATEST_H_
