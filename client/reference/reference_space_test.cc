#include "client/reference/reference_space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "client/reference/reference_space_fixture.h"

namespace parley {
namespace {

using ::testing::HasSubstr;

TEST_F(ReferenceSpaceTest, AResultIsFetchedFromWhereItLives) {
  Connect(0, "b");
  const Handle result = Call(0, "b");
  EXPECT_THAT(Fetch(0, result, 7), ::testing::Eq(absl::StatusOr<int64_t>(7)));
  EXPECT_EQ(space(1).owner().values(), 1u);
  Drop(0, result);
  Settle();
  EXPECT_EQ(space(1).owner().values(), 0u);
  EXPECT_EQ(space(0).handles(), 0u);
}

TEST_F(ReferenceSpaceTest, ACallNeedsAConnection) {
  Replies replies;
  EXPECT_EQ(space(0).Call("b", "make", {}, {}, false, now_, replies).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

// Flow 4 of the protocol: a has b's value and hands it to c, and drops its own at once.
TEST_F(ReferenceSpaceTest, AnArgumentLivesUntilTheCalleeHoldsIt) {
  Connect(0, "b");
  Connect(0, "c");
  const Handle value = Call(0, "b");
  Settle(5);
  Call(0, "c", {value});
  Drop(0, value);
  const auto call = Take<OutgoingCall>();
  ASSERT_TRUE(call.has_value());
  EXPECT_FALSE(Take<DropRequest>().has_value());
  Arrive(*call);
  EXPECT_FALSE(Take<DropRequest>().has_value()) << "before c holds it";
  EXPECT_TRUE(space(2).TakeRuns().empty()) << "before c holds it";
  // c opens a session with b, and asks.
  Arrive(*Take<OpenSessionRequest>());
  Arrive(*Take<ForkRequest>());
  const auto runs = space(2).TakeRuns();
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_TRUE(Take<DropRequest>().has_value());
  EXPECT_THAT(Fetch(2, runs[0].arguments[0]), ::testing::Eq(absl::StatusOr<int64_t>(5)));
}

TEST_F(ReferenceSpaceTest, TheOwnerGivesAForkToWhoHasASessionWithIt) {
  Connect(0, "b");
  Connect(1, "a");
  const Handle value = space(0).Make(ValueOf(9), {});
  Call(0, "b", {value}, {}, /*ahead=*/true);
  Drop(0, value);
  Arrive(*Take<OutgoingCall>());
  const auto runs = space(1).TakeRuns();
  ASSERT_EQ(runs.size(), 1u) << "at once";
  // Its value has come with the call.
  absl::StatusOr<FetchedValue> fetched = absl::UnknownError("");
  {
    Replies replies;
    space(1).Fetch(runs[0].arguments[0], {now_, now_ + absl::Seconds(1)}, replies,
                   [&](absl::StatusOr<FetchedValue> value) { fetched = std::move(value); });
  }
  ASSERT_TRUE(fetched.ok() && fetched->value.ok());
  EXPECT_FALSE(Take<FetchRequest>().has_value());
  EXPECT_EQ(space(0).owner().values(), 1u);
  Replies replies;
  space(1).Finish(runs[0], ValueOf(1), now_, replies);
  Settle();
  EXPECT_EQ(space(0).owner().values(), 0u) << "the argument was dropped with the call";
}

TEST_F(ReferenceSpaceTest, NoDropIsSentWhileAFetchIsOpen) {
  Connect(0, "b");
  const Handle value = Call(0, "b");
  Settle(4);
  absl::StatusOr<FetchedValue> fetched = absl::UnknownError("");
  {
    Replies replies;
    space(0).Fetch(value, {now_, now_ + absl::Seconds(1)}, replies,
                   [&](absl::StatusOr<FetchedValue> value) { fetched = std::move(value); });
  }
  Drop(0, value);
  const auto fetch = Take<FetchRequest>();
  EXPECT_FALSE(Take<DropRequest>().has_value());
  Arrive(*fetch);
  EXPECT_TRUE(fetched.ok());
  EXPECT_TRUE(Take<DropRequest>().has_value());
}

TEST_F(ReferenceSpaceTest, AnArgumentThatCannotBeHadIsTheErrorOfTheCall) {
  Connect(0, "b");
  Connect(0, "c");
  const Handle value = Call(0, "b");
  Settle();
  const Handle other = Call(0, "c", {value});
  const auto call = Take<OutgoingCall>();
  Start(1);
  Arrive(*call);
  const auto fetched = Fetch(0, other);
  EXPECT_EQ(fetched.status().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(fetched.status().message()), HasSubstr("an argument of make"));
  EXPECT_TRUE(ran_.empty() || ran_.size() == 1) << "only the first";
}

TEST_F(ReferenceSpaceTest, TheEndOfAStepFreesAllOfIt) {
  Connect(0, "b");
  const Handle of_step = Call(0, "b", {}, Scope(3));
  const Handle of_next = Call(0, "b", {}, Scope(4));
  const Handle of_none = Call(0, "b");
  Settle(8);
  {
    Replies replies;
    space(1).EndStep({0, 3, 0}, now_, replies);
  }
  EXPECT_EQ(space(1).owner().values(), 2u);
  const absl::Status over = Fetch(0, of_step).status();
  EXPECT_EQ(over.code(), absl::StatusCode::kFailedPrecondition) << over;
  EXPECT_TRUE(Fetch(0, of_next).ok());
  EXPECT_TRUE(Fetch(0, of_none).ok());
  // What comes of it later has no effect.
  Call(0, "b", {}, Scope(3));
  Settle();
  EXPECT_EQ(space(1).owner().values(), 2u);
  EXPECT_EQ(ran_.size(), 3u);
}

}  // namespace
}  // namespace parley
