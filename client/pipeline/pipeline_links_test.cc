#include "client/pipeline/pipeline_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "client/torch/testing/fake_session.h"

namespace parley {
namespace {

using ::testing::HasSubstr;

// Of a job whose coordinator says nothing, or that its view is another one.
class WaitingSession final : public FakeSession {
 public:
  WaitingSession() : FakeSession({}, 0.1) {}
  absl::Status AwaitPeers(const std::string& /*what*/, const std::function<bool()>& done) override {
    ++waits;
    while (!done()) {
      if (!told.ok()) return told;
      absl::SleepFor(absl::Milliseconds(1));
    }
    return absl::OkStatus();
  }
  int waits = 0;
  absl::Status told;
};

class PipelineLinksTest : public ::testing::Test {
 protected:
  PipelineLinksTest() {
    PipelineLinks::Options options;
    options.job = "test";
    options.listen = "127.0.0.1:0";
    options.lease = absl::Milliseconds(200);
    links_ = *PipelineLinks::Start(options, session_);
  }
  WaitingSession session_;
  std::unique_ptr<PipelineLinks> links_;
};

TEST_F(PipelineLinksTest, AProcessThatCannotBeReachedButIsNotGoneEndsTheJob) {
  const absl::Time began = absl::Now();
  const absl::Status status =
      links_->GiveUp(absl::UnavailableError("stage 1 at a:1 cannot be reached: reset")).status();
  EXPECT_GE(absl::Now() - began, absl::Milliseconds(200)) << "the coordinator may know more";
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("stage 1 at a:1 cannot be reached: reset; and the coordinator has not"));
}

TEST_F(PipelineLinksTest, OneThatIsGoneIsWhatTheCoordinatorSays) {
  session_.told = absl::AbortedError("another process has its place");
  EXPECT_EQ(links_->GiveUp(absl::UnavailableError("it cannot be reached")).status(), session_.told);
}

TEST_F(PipelineLinksTest, NothingElseIsWaitedFor) {
  const absl::Status why = absl::InternalError("a fault of the GPU");
  EXPECT_EQ(links_->GiveUp(why).status(), why);
  EXPECT_EQ(session_.waits, 0);
}

}  // namespace
}  // namespace parley
