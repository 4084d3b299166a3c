#ifndef PARLEY_CLIENT_PARLEY_PLAN_TEXT_H_
#define PARLEY_CLIENT_PARLEY_PLAN_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "client/parley/model_description.h"
#include "proto/job.pb.h"

namespace parley {

// What would run: processes, steps, pipelines, what lies on each shard, and memory. A pure function
// of a job that LoadJob gave and of its model. Lines, each ended. InvalidArgument for a model that
// cannot be placed; the codes of PlanPipelines.
absl::StatusOr<std::string> PlanText(const JobConfig& job, const ModelDescription& model);

// The same of a job that a program of the user's own trains: what can be said without its model.
std::string OwnProgramPlanText(const JobConfig& job);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_PLAN_TEXT_H_
