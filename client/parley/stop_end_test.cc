#include "client/parley/stop_end.h"

#include <gtest/gtest.h>

namespace parley {
namespace {

class EndOfStopTest : public testing::Test {
 protected:
  EndOfStopTest() {
    told_.set_step(20);
    status_.set_phase(TRAINING);
    status_.set_checkpoint_step(12);
    status_.set_checkpoint_directory("/c/step-00000012");
  }

  StopReply told_;
  GetStatusReply status_;
};

TEST_F(EndOfStopTest, TheFolderOfANewCheckpointOnceTheJobHasEnded) {
  status_.set_checkpoint_step(21);
  status_.set_checkpoint_directory("/c/step-00000021");
  EXPECT_FALSE(EndOfStop(told_, status_).has_value()) << "it has not ended";
  status_.set_phase(FAILED);
  status_.mutable_cause()->set_text("stopped");
  const auto end = EndOfStop(told_, status_);
  ASSERT_TRUE(end.has_value() && end->ok());
  EXPECT_EQ(**end, "/c/step-00000021");
}

TEST_F(EndOfStopTest, AnOlderCheckpointIsNone) {
  status_.set_phase(FAILED);
  status_.mutable_cause()->set_text("no checkpoint could be written: no space left");
  const auto end = EndOfStop(told_, status_);
  ASSERT_TRUE(end.has_value());
  EXPECT_TRUE(absl::IsAborted(end->status()));
  EXPECT_NE(end->status().message().find("no space left"), absl::string_view::npos);
}

TEST_F(EndOfStopTest, AJobThatFinishedMeanwhileIsNoFailure) {
  status_.set_phase(SAVING);
  EXPECT_FALSE(EndOfStop(told_, status_).has_value());
  status_.set_phase(FINISHED);
  const auto end = EndOfStop(told_, status_);
  ASSERT_TRUE(end.has_value() && end->ok());
  EXPECT_EQ(**end, "/c/step-00000012");
}

}  // namespace
}  // namespace parley
