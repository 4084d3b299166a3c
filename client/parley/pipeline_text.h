#ifndef PARLEY_CLIENT_PARLEY_PIPELINE_TEXT_H_
#define PARLEY_CLIENT_PARLEY_PIPELINE_TEXT_H_

#include <string>

#include "absl/status/status.h"
#include "client/parley/model_description.h"
#include "client/parley/pipeline_plan.h"
#include "common/file_system.h"
#include "proto/job.pb.h"

namespace parley {

// The schedule, its bubble, and what each stage of a pipeline has. Lines, each ended.
std::string PipelineText(const JobConfig& job, const ModelDescription& model,
                         const PipelinePlan& plan);

// Writes the time line of the plan's prediction as an SVG. InvalidArgument for a job without
// pipelines; the codes of PlanPipelines and of the file system.
absl::Status WriteTimeline(const JobConfig& job, const ModelDescription& model,
                           const std::string& path, FileSystem& files);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_PIPELINE_TEXT_H_
