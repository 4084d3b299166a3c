#ifndef PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_TIMELINE_H_
#define PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_TIMELINE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "server/pipeline_stage/schedule/prediction.h"

namespace parley {

// The time line as an SVG picture: a row for each stage, a box for each forward, backward, input
// and weight gradient, with its microbatch where there is room, and time along the lower edge. A
// stage's second part is paler than its first. title: of the picture; plain text.
std::string DrawTimeline(const Prediction& prediction, absl::string_view title);

}  // namespace parley

#endif  // PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_TIMELINE_H_
