#include "client/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace parley {
namespace {

absl::Time At(int64_t milliseconds) {
  return absl::UnixEpoch() + absl::Seconds(1000) + absl::Milliseconds(milliseconds);
}

nlohmann::json Written(const Trace& trace) {
  const std::string path = ::testing::TempDir() + "/trace.json";
  EXPECT_EQ(trace.WriteTo(path, "worker 1"), absl::OkStatus());
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

TEST(TraceTest, WritesSpansAndCallsAsChromesTraceEvents) {
  Trace trace;
  trace.Span("forward \"of\" step 7\xff", At(0), At(5));
  trace.Call("shard 2", "pushing", At(3), At(9));
  const nlohmann::json all = Written(trace);
  const nlohmann::json& events = all["traceEvents"];
  ASSERT_EQ(events.size(), 5);
  EXPECT_EQ(events[0]["args"]["name"], "worker 1");
  EXPECT_EQ(events[2]["ph"], "X");
  EXPECT_EQ(events[2]["name"], "forward \"of\" step 7\xef\xbf\xbd");
  EXPECT_EQ(events[2]["ts"], 1e9);
  EXPECT_EQ(events[2]["dur"], 5e3);
  EXPECT_EQ(events[3]["ph"], "b");
  EXPECT_EQ(events[4]["ph"], "e");
  EXPECT_EQ(events[3]["id"], events[4]["id"]);
  EXPECT_EQ(events[4]["cat"], "shard 2");
  EXPECT_EQ(events[4]["ts"], 1e9 + 9e3);
  EXPECT_EQ(all["otherData"]["events_left_out"], 0);
}

TEST(TraceTest, WhoIsAtWorkBesideTheTrainingThreadHasALane) {
  Trace trace;
  trace.Span("GPU: compute", "forward", At(0), At(5));
  trace.Span("forward", At(0), At(1));
  trace.Span("GPU: to host", "copy", At(2), At(3));
  trace.Span("GPU: compute", "backward", At(5), At(9));
  std::map<int, std::string> lanes;
  std::multimap<std::string, std::string> spans;
  const nlohmann::json all = Written(trace);
  for (const nlohmann::json& event : all["traceEvents"]) {
    if (event["name"] == "thread_name") lanes[event["tid"]] = event["args"]["name"];
    if (event["ph"] == "X") spans.emplace(lanes[event["tid"]], event["name"]);
  }
  EXPECT_THAT(spans, ::testing::UnorderedElementsAre(::testing::Pair("GPU: compute", "forward"),
                                                     ::testing::Pair("training thread", "forward"),
                                                     ::testing::Pair("GPU: to host", "copy"),
                                                     ::testing::Pair("GPU: compute", "backward")));
}

TEST(TraceTest, CountsWhatIsTooMuch) {
  Trace trace(2);
  for (int i = 0; i < 5; ++i) trace.Span("step", At(i), At(i + 1));
  const nlohmann::json all = Written(trace);
  EXPECT_EQ(all["traceEvents"].size(), 4);
  EXPECT_EQ(all["otherData"]["events_left_out"], 3);
}

TEST(TraceTest, AFileThatCannotBeWrittenIsNamed) {
  const absl::Status status = Trace().WriteTo("/nowhere/trace.json", "worker 1");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("/nowhere/trace.json"));
}

}  // namespace
}  // namespace parley
