#include "client/parley/coordinator_silence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace parley {
namespace {

TEST(CoordinatorSilenceTest, OneThatIsSilentForLongHasGone) {
  const absl::Time start = absl::UnixEpoch();
  const absl::Status nothing = absl::UnavailableError("nobody there");
  CoordinatorSilence silence(start);
  const auto after = [&](int seconds, const absl::Status& answer) {
    return silence.Heard(answer, start + absl::Seconds(seconds), "how the job ended");
  };
  EXPECT_TRUE(after(19, nothing).ok());
  EXPECT_TRUE(after(25, absl::OkStatus()).ok()) << "it was only away";
  EXPECT_TRUE(after(44, nothing).ok());
  const absl::Status gone = after(45, nothing);
  EXPECT_TRUE(absl::IsUnavailable(gone));
  EXPECT_THAT(std::string(gone.message()),
              testing::HasSubstr("has gone without a word of how the job ended"));
  EXPECT_THAT(std::string(gone.message()), testing::HasSubstr("nobody there"));
}

}  // namespace
}  // namespace parley
