// Messages that come late, twice or not at all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <variant>

#include "client/reference/reference_space_fixture.h"

namespace parley {
namespace {

TEST_F(ReferenceSpaceTest, AForkThatOvertakesTheCallWaitsForIt) {
  Connect(0, "b");
  Connect(0, "c");
  const Handle value = Call(0, "b");
  const auto late = Take<OutgoingCall>();
  const Handle other = Call(0, "c", {value});
  Arrive(*Take<OutgoingCall>());
  Arrive(*Take<OpenSessionRequest>());
  Arrive(*Take<ForkRequest>());
  EXPECT_TRUE(space(2).TakeRuns().empty());
  Arrive(*late);
  Settle(3);
  EXPECT_THAT(Fetch(0, other), ::testing::Eq(absl::StatusOr<int64_t>(3)));
}

TEST_F(ReferenceSpaceTest, ACallThatComesTwiceRunsOnce) {
  Connect(0, "b");
  Call(0, "b");
  const auto call = Take<OutgoingCall>();
  Arrive(*call, /*answers=*/false);
  Arrive(*call);
  Settle();
  Arrive(*call, /*answers=*/false);
  Settle();
  EXPECT_EQ(ran_.size(), 1u);
}

// Whether a call has come there: the callee's word, or why it is not known.
TEST_F(ReferenceSpaceTest, WhoCallsIsToldWhetherItHasCome) {
  Connect(0, "b");
  std::vector<absl::Status> answered;
  const auto call = [&](const ReferenceScope& scope = {}) {
    Replies replies;
    const auto result =
        space(0).Call("b", "make", {}, scope, false, now_, replies,
                      [&](const absl::Status& status) { answered.push_back(status); });
    EXPECT_TRUE(result.ok()) << result.status();
    Drop(0, result.value_or(0));
  };
  call();
  const auto first = Take<OutgoingCall>();
  EXPECT_TRUE(answered.empty());
  Arrive(*first);
  EXPECT_EQ(answered, std::vector<absl::Status>{absl::OkStatus()});
  answered.clear();
  // One that is given up, with its step.
  call(Scope(1));
  {
    Replies replies;
    space(0).EndStep({.step = 1}, now_, replies);
  }
  Settle();
  ASSERT_EQ(answered.size(), 1u);
  EXPECT_EQ(answered[0].code(), absl::StatusCode::kCancelled) << answered[0];
  answered.clear();
  // And one that is on its way when the link is lost.
  call();
  EXPECT_TRUE(Take<OutgoingCall>().has_value());
  Pass(kLease);
  ASSERT_EQ(answered.size(), 1u);
  EXPECT_EQ(answered[0].code(), absl::StatusCode::kAborted) << answered[0];
  Replies replies;
  EXPECT_FALSE(space(0)
                   .Call("b", "make", {}, {}, false, now_, replies,
                         [&](const absl::Status& status) { answered.push_back(status); })
                   .ok());
  EXPECT_EQ(answered.size(), 1u) << "that Call has said";
}

// As gRPC says where the owner's server ends a call: that is no word of the owner's.
TEST_F(ReferenceSpaceTest, WhatTheTransportCancelsIsTriedAgain) {
  Connect(0, "b");
  const Handle made = Call(0, "b");
  Answer(*Take<OutgoingCall>(), absl::CancelledError("CANCELLED"));
  Pass(absl::Seconds(1));
  EXPECT_EQ(*Fetch(0, made, 7), 7);
}

// And where a connection breaks in the middle of an answer.
TEST_F(ReferenceSpaceTest, WhatTheTransportKnowsNothingOfIsTriedAgain) {
  Connect(0, "b");
  const Handle made = Call(0, "b");
  Answer(*Take<OutgoingCall>(), absl::UnknownError("Stream removed"));
  Pass(absl::Seconds(1));
  const auto fetched = Fetch(0, made, 7);
  EXPECT_THAT(fetched, ::testing::Eq(absl::StatusOr<int64_t>(7)));
}

// One that is given up begins again with its first byte.
TEST_F(ReferenceSpaceTest, WhatCarriesAValueHasALeaseForAnAttempt) {
  const auto patience = [this](const std::optional<Letter>& letter) {
    return letter.has_value() ? letter->message.deadline - now_ : absl::ZeroDuration();
  };
  Connect(0, "b");
  const Handle made = Call(0, "b");
  const auto call = Take<OutgoingCall>();
  EXPECT_EQ(patience(call), kLease);
  Arrive(*call);
  Settle(5);
  const auto fetch = [&](absl::Duration within) {
    {
      Replies replies;
      space(0).Fetch(made, {now_, now_ + within}, replies, [](const auto&) {});
    }
    const auto letter = Take<FetchRequest>();
    Arrive(*letter);
    return patience(letter);
  };
  EXPECT_EQ(fetch(absl::Minutes(1)), kLease);
  EXPECT_EQ(fetch(absl::Seconds(1)), absl::Seconds(1)) << "nobody waits for it any longer";
  // The others are small.
  Connect(0, "c");
  Call(0, "c", {made});
  Arrive(*Take<OutgoingCall>());
  const auto open = Take<OpenSessionRequest>();
  EXPECT_EQ(patience(open), absl::Seconds(5));
  Arrive(*open);
  EXPECT_EQ(patience(Take<ForkRequest>()), absl::Seconds(5));
  Drop(0, made);
  Call(0, "b", {}, Scope(1));
  Replies replies;
  space(0).EndStep({0, 1, 0}, now_, replies);
  EXPECT_EQ(patience(Take<DropRequest>()), absl::Seconds(5));
}

TEST_F(ReferenceSpaceTest, WhatIsDroppedBeforeItComesNeverBegins) {
  Connect(0, "b");
  Call(0, "b", {}, Scope(1));
  const auto call = Take<OutgoingCall>();
  {
    Replies replies;
    space(0).EndStep({0, 1, 0}, now_, replies);
  }
  Arrive(*Take<DropRequest>());
  Arrive(*call);
  Settle();
  EXPECT_TRUE(ran_.empty());
  EXPECT_EQ(space(1).owner().values(), 0u);
}

TEST_F(ReferenceSpaceTest, NumbersThatNoHolderUsesAreRefused) {
  Connect(0, "b");
  Call(0, "b");
  auto letter = Take<OutgoingCall>();
  const auto refused = [&](uint64_t number, uint64_t first_open) {
    auto call = std::get<OutgoingCall>(letter->message.request);
    call.head.mutable_number()->set_number(number);
    call.head.mutable_number()->set_first_open(first_open);
    absl::Status status;
    {
      Replies replies;
      space(1).OnCall(call, {now_}, replies,
                      [&](absl::StatusOr<RemoteCallReply> reply) { status = reply.status(); });
    }
    return status;
  };
  EXPECT_TRUE(absl::IsInvalidArgument(refused(0, 0)));
  EXPECT_TRUE(absl::IsInvalidArgument(refused(1, 2)));
  EXPECT_TRUE(absl::IsInvalidArgument(refused(kGivenFork + 1, 1)));
  EXPECT_EQ(space(1).owner().values(), 0u);
}

}  // namespace
}  // namespace parley
