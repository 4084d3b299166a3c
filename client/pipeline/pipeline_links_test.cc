#include "client/pipeline/pipeline_links.h"

#include <gtest/gtest.h>

#include <memory>

#include "client/torch/testing/fake_session.h"

namespace parley {
namespace {

// The session, which gives back what it is told: of Aborted it would have waited for the
// coordinator's word.
TEST(PipelineLinks, OfAProcessThatCannotBeReachedTheCoordinatorHasAWord) {
  FakeSession session({}, 0.1);
  PipelineLinks::Options options;
  options.job = "test";
  options.listen = "127.0.0.1:0";
  const auto links = PipelineLinks::Start(options, session);
  ASSERT_TRUE(links.ok()) << links.status();
  EXPECT_EQ((*links)->GiveUp(absl::UnavailableError("stage 1 cannot be reached")).status(),
            absl::AbortedError("stage 1 cannot be reached"));
  const absl::Status fault = absl::InternalError("a fault of the GPU");
  EXPECT_EQ((*links)->GiveUp(fault).status(), fault);
}

}  // namespace
}  // namespace parley
