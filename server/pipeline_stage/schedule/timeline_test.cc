#include "server/pipeline_stage/schedule/timeline.h"

#include <gtest/gtest.h>

#include <string>

#include "server/pipeline_stage/schedule/schedules.h"

namespace parley {
namespace {

size_t Count(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(Timeline, HasABoxForEachPieceOfWorkAndItsLegend) {
  const Schedule order = *MakeSchedule({ScheduleKind::kZeroBubble, 3, 5});
  PipelineCosts costs;
  PartCost part;
  part.forward = part.input_gradient = part.weight_gradient = absl::Milliseconds(50);
  costs.parts.assign(3, part);
  const std::string svg =
      DrawTimeline(*Predict(WithMessages(order, ChainOf(3)), costs), "a < b & c");
  EXPECT_EQ(Count(svg, "<title>"), 3u * 5 * 3);
  EXPECT_EQ(Count(svg, "<title>I"), 3u * 5);
  EXPECT_NE(svg.find(">a &lt; b &amp; c: 850ms, bubble 11.8%<"), std::string::npos) << svg;
  EXPECT_NE(svg.find(">weight gradient<"), std::string::npos);
  EXPECT_EQ(svg.find(">backward<"), std::string::npos) << "there is none";
  EXPECT_EQ(Count(svg, ">stage "), 3u);
  EXPECT_NE(svg.find(">800ms<"), std::string::npos);
  EXPECT_EQ(Count(svg, "<svg"), 1u);
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
}

TEST(Timeline, OfNothingIsEmpty) { EXPECT_EQ(Count(DrawTimeline({}, "nothing"), "<title>"), 0u); }

}  // namespace
}  // namespace parley
