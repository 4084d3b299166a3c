#include "common/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include "common/clock/steady_now.h"
#include "common/connect_for_test.h"
#include "common/file_descriptor.h"

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

// What has come after 20 s, if it has not ended before.
std::string Scrape(const std::string& address) {
  const FileDescriptor fd = ConnectForTest(address);
  const timeval patience = {20, 0};
  EXPECT_EQ(::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
  const std::string request = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  EXPECT_EQ(::write(fd.get(), request.data(), request.size()),
            static_cast<ssize_t>(request.size()));
  std::string text;
  std::array<char, 4096> part;
  for (ssize_t got = 0; (got = ::read(fd.get(), part.data(), part.size())) > 0;) {
    text.append(part.data(), static_cast<size_t>(got));
  }
  return text;
}

TEST(Metrics, WhoConnectsAndSaysNothingDoesNotHoldUpAScrape) {
  Metrics metrics;
  metrics.Gauge("parley_step", "Step.").Set(7);
  ASSERT_TRUE(metrics.Serve("127.0.0.1:0").ok());
  for (const int silent : {3, 8}) {  // some threads are left; none is
    std::vector<FileDescriptor> strangers;
    for (int i = 0; i < silent; ++i) strangers.push_back(ConnectForTest(metrics.address()));
    const absl::Time asked = SteadyNow();
    EXPECT_THAT(Scrape(metrics.address()), HasSubstr("parley_step 7\n"));
    EXPECT_LT(SteadyNow() - asked, absl::Seconds(silent == 3 ? 5 : 15));
  }
}

}  // namespace
}  // namespace parley
