// Who has a session with whom, for how long, and what ends with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <variant>

#include "client/reference/reference_space_fixture.h"

namespace parley {
namespace {

using ::testing::HasSubstr;

TEST_F(ReferenceSpaceTest, TheHolderStopsBeforeTheOwnerFrees) {
  Connect(0, "b");
  const Handle value = Call(0, "b");
  Settle();
  Pass(0.9 * kLease);
  EXPECT_EQ(space(0).StatusOf(value, now_).code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(freed_.empty());
  Pass(0.1 * kLease);
  ASSERT_EQ(freed_.size(), 1u);
  EXPECT_EQ(freed_[0].second, ReferenceOwner::Why::kLeaseOver);
}

TEST_F(ReferenceSpaceTest, ARenewedLeaseGoesOn) {
  Connect(0, "b");
  const Handle value = Call(0, "b");
  Settle(6);
  for (int i = 0; i < 20; ++i) {
    Pass(0.4 * kLease);
    Settle();
  }
  EXPECT_THAT(Fetch(0, value), ::testing::Eq(absl::StatusOr<int64_t>(6)));
}

TEST_F(ReferenceSpaceTest, ARestartedOwnerIsToldFromTheOldOne) {
  Connect(0, "b");
  const Handle value = Call(0, "b");
  Settle();
  Start(1);
  const auto fetched = Fetch(0, value);
  EXPECT_EQ(fetched.status().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(fetched.status().message()), HasSubstr("restarted"));
  Connect(0, "b");
  EXPECT_THAT(Fetch(0, Call(0, "b"), 2), ::testing::Eq(absl::StatusOr<int64_t>(2)));
}

TEST_F(ReferenceSpaceTest, AConnectionToARestartedOwnerIsNotTheFormerOnes) {
  Connect(0, "b");
  absl::Status status = absl::UnknownError("not yet");
  const auto connect = [&] {
    Replies replies;
    space(0).Connect("b", now_, replies,
                     [&](const absl::Status& then, absl::Time, Replies&) { status = then; });
  };
  connect();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnknown) << "it has answered before only";
  Settle();
  EXPECT_TRUE(status.ok()) << status;
  // An answer that was on its way when the process ended says nothing.
  Pass(0.4 * kLease);
  const auto renew = Take<RenewSessionRequest>();
  ASSERT_TRUE(renew.has_value());
  status = absl::UnknownError("not yet");
  connect();
  Arrive(*renew);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnknown);
  Start(1);
  Settle();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  connect();
  Settle();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(Fetch(0, Call(0, "b"), 2), ::testing::Eq(absl::StatusOr<int64_t>(2)));
}

TEST_F(ReferenceSpaceTest, WhoHasGoneHoldsNothing) {
  Connect(0, "b");
  Call(0, "b");
  Settle();
  {
    Replies replies;
    space(0).LeaveAll(now_, replies);
  }
  Settle();
  EXPECT_EQ(space(1).owner().values(), 0u);
  EXPECT_EQ(space(1).owner().sessions(), 0u);
}

// b has a session with a because it was handed a value of a's by c; it drops that.
class OpenedByAForkTest : public ReferenceSpaceTest {
 protected:
  OpenedByAForkTest() {
    Connect(0, "c");
    Connect(2, "b");
    const Handle value = space(0).Make(ValueOf(1), {});
    Call(0, "c", {value});
    Arrive(*Take<OutgoingCall>());
    Arrive(*Take<OpenSessionRequest>());
    Arrive(*Take<ForkRequest>());
    const auto runs = space(2).TakeRuns();
    Call(2, "b", {runs.at(0).arguments[0]});
    Settle();
    EXPECT_EQ(space(1).holder().links(), 1u);
    EXPECT_EQ(space(1).holder().held(), 0u);
  }

  void Pass(int leases, const std::function<void()>& each) {
    for (int i = 0; i < 4 * leases; ++i) {
      ReferenceSpaceTest::Pass(0.25 * kLease);
      Settle();
      each();
    }
  }
};

TEST_F(OpenedByAForkTest, ALinkThatIsNotUsedIsGivenUp) {
  Pass(2, [] {});
  EXPECT_EQ(space(1).holder().links(), 0u);
}

// As a stage while a pipeline only computes forward.
TEST_F(OpenedByAForkTest, WhoOnlyReceivesIsStillGivenForks) {
  Connect(0, "b");
  Pass(4, [this] {
    const Handle value = space(0).Make(ValueOf(1), {});
    Call(0, "b", {value}, {}, /*ahead=*/true);
    Drop(0, value);
    const auto call = Take<OutgoingCall>();
    ASSERT_TRUE(call.has_value());
    EXPECT_NE(std::get<OutgoingCall>(call->message.request).head.arguments(0).given_fork(), 0u);
    Arrive(*call);
    Settle();
  });
}

TEST_F(ReferenceSpaceTest, WhoHasConnectedStaysSo) {
  Connect(0, "b");
  Connect(1, "a");
  for (int i = 0; i < 16; ++i) {
    Pass(0.25 * kLease);
    Settle();
  }
  Call(0, "b", {space(0).Make(ValueOf(1), {})}, {}, /*ahead=*/true);
  const auto call = Take<OutgoingCall>();
  ASSERT_TRUE(call.has_value());
  EXPECT_NE(std::get<OutgoingCall>(call->message.request).head.arguments(0).given_fork(), 0u);
  Start(1);
  Pass(0.4 * kLease);
  Settle();
  EXPECT_EQ(space(0).holder().links(), 0u) << "who has gone";
}

TEST_F(ReferenceSpaceTest, AnotherJobIsRefused) {
  OpenSessionRequest request;
  request.set_job("another");
  request.set_holder(1);
  Replies replies;
  EXPECT_EQ(space(0).OnOpen(request, now_, replies).status().code(), absl::StatusCode::kNotFound);
}

// The two sides cannot come to differ by the protocol; if they do all the same it is mended.
TEST_F(ReferenceSpaceTest, ADifferenceIsFoundAndMended) {
  Connect(0, "b");
  const Handle value = Call(0, "b");
  Settle();
  const auto place = space(0).PlaceOf(value);
  RenewSessionRequest renew;
  renew.mutable_header()->set_owner(space(0).IdOf(value).owner);
  renew.mutable_header()->set_session(place.session);
  renew.set_next_number(2);
  Replies replies;
  const auto answer = space(1).OnRenew(renew, now_, replies);
  ASSERT_TRUE(answer.ok());
  EXPECT_TRUE(answer->differs()) << "one fork there, none here";
  renew.set_tells_all(true);
  renew.add_held(77);
  const auto mended = space(1).OnRenew(renew, now_, replies);
  ASSERT_TRUE(mended.ok());
  EXPECT_THAT(mended->not_held(), ::testing::ElementsAre(77));
  EXPECT_EQ(space(1).owner().values(), 0u);
  EXPECT_EQ(space(1).owner().mended(), 2u);
}

}  // namespace
}  // namespace parley
