#include "client/parley/checkpoint_now.h"

#include <gtest/gtest.h>

namespace parley {
namespace {

class EndOfCheckpointTest : public testing::Test {
 protected:
  EndOfCheckpointTest() {
    asked_.set_step(20);
    asked_.set_failed(1);
    status_.set_phase(TRAINING);
    status_.set_step(25);
    status_.set_checkpoint_step(20);
    status_.set_checkpoint_directory("/c/step-00000020");
    status_.set_checkpoints_failed(1);
    status_.set_checkpoint_error("an old error");
  }

  AskForCheckpointReply asked_;
  GetStatusReply status_;
};

TEST_F(EndOfCheckpointTest, OneOfALaterVersion) {
  EXPECT_FALSE(EndOfCheckpoint(asked_, status_).has_value()) << "that one was there before";
  status_.set_checkpoint_step(21);
  status_.set_checkpoint_directory("/c/step-00000021");
  const auto end = EndOfCheckpoint(asked_, status_);
  ASSERT_TRUE(end.has_value() && end->ok());
  EXPECT_EQ(**end, "/c/step-00000021");
}

TEST_F(EndOfCheckpointTest, AFailureTellsWhyAndWhatThereIs) {
  status_.set_checkpoints_failed(2);
  status_.set_checkpoint_error("no space left");
  const auto end = EndOfCheckpoint(asked_, status_);
  ASSERT_TRUE(end.has_value());
  EXPECT_TRUE(absl::IsUnavailable(end->status()));
  for (const char* part : {"no space left", "/c/step-00000020", "goes on"}) {
    EXPECT_NE(end->status().message().find(part), absl::string_view::npos) << end->status();
  }
}

TEST_F(EndOfCheckpointTest, TheJobMayEndFirst) {
  status_.set_phase(FINISHED);
  const auto last = EndOfCheckpoint(asked_, status_);
  ASSERT_TRUE(last.has_value() && last->ok()) << "no step came after the question";
  status_.set_checkpoint_step(10);
  status_.set_phase(FAILED);
  status_.mutable_cause()->set_text("worker 1 is gone");
  const auto end = EndOfCheckpoint(asked_, status_);
  ASSERT_TRUE(end.has_value());
  EXPECT_TRUE(absl::IsAborted(end->status()));
  EXPECT_NE(end->status().message().find("worker 1 is gone"), absl::string_view::npos);
}

}  // namespace
}  // namespace parley
