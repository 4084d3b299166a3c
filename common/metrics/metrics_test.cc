#include "common/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace parley {
namespace {

using testing::HasSubstr;

TEST(Metrics, CarryTheIdentityThatIsKnownAtTheScrape) {
  Metrics metrics;
  metrics.Counter("parley_pushes_total", "Pushes.", {{"outcome", "added"}}).Increment(3);
  metrics.SetIdentity("digits", "shard", "shard-1");
  EXPECT_THAT(
      metrics.Text(),
      HasSubstr(
          R"(parley_pushes_total{outcome="added",job="digits",role="shard",member="shard-1"} 3)"));
}

TEST(Metrics, TheSameNameAndLabelsAreTheSameMetric) {
  Metrics metrics;
  metrics.Gauge("parley_step", "Step.").Set(1);
  metrics.Gauge("parley_step", "Step.").Increment();
  EXPECT_THAT(metrics.Text(), HasSubstr("parley_step 2\n"));
}

TEST(Metrics, TellOfTheProcess) {
  const std::string text = Metrics().Text();
  for (const char* name : {"process_cpu_seconds_total", "process_resident_memory_bytes",
                           "process_open_fds", "process_start_time_seconds"}) {
    EXPECT_THAT(text, HasSubstr(std::string("\n") + name + " ")) << name;
  }
}

TEST(Metrics, CallsAreSeenByMethodAndCode) {
  Metrics metrics;
  metrics.ObserveRpc("Push", 0, absl::Milliseconds(3));
  EXPECT_THAT(metrics.Text(),
              HasSubstr(R"(parley_rpc_duration_seconds_count{code="OK",method="Push"} 1)"));
}

TEST(Metrics, APortInUseIsAnError) {
  Metrics first;
  ASSERT_TRUE(first.Serve("127.0.0.1:0").ok());
  EXPECT_EQ(Metrics().Serve(first.address()).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Metrics().Serve("nonsense").code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace parley
