#ifndef PARLEY_CLIENT_PARLEY_START_TEXT_H_
#define PARLEY_CLIENT_PARLEY_START_TEXT_H_

#include <string>

#include "absl/status/status.h"
#include "client/parley/model_description.h"
#include "server/coordinator/view.h"

namespace parley {

// Whether a job's model and data can go on from where it starts, as its coordinator will decide
// when workers register: `parley run` and `parley plan` know the model before. INVALID_ARGUMENT,
// with the field's name and all tensors that do not match.
absl::Status CheckModelStart(const StartPoint& start, const ModelDescription& model);

// What the job starts from: a line of the plan.
std::string StartText(const StartPoint& start);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_START_TEXT_H_
