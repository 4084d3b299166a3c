#ifndef PARLEY_COMMON_JOB_JOB_FIELDS_H_
#define PARLEY_COMMON_JOB_JOB_FIELDS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace parley {

// The values of a field of the job ("cluster.workers"), as scripts take them: text without quotes,
// names of enums, one for each element of a list; none where the field is not set. InvalidArgument:
// there is no such field, or it has fields of its own.
absl::StatusOr<std::vector<std::string>> FieldTexts(const JobConfig& job, std::string_view path);

}  // namespace parley

#endif  // PARLEY_COMMON_JOB_JOB_FIELDS_H_
