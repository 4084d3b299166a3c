#include "client/reference/reference_space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace parley {
namespace {

using ::testing::HasSubstr;
using Handle = ReferenceSpace::Handle;

constexpr absl::Duration kLease = absl::Seconds(8);

ValuePtr ValueOf(int64_t number) {
  auto value = std::make_shared<RemoteValue>();
  ValueTensor& tensor = value->tensors.emplace_back();
  tensor.dtype = I64;
  tensor.shape = {number};
  return value;
}

ReferenceScope Scope(uint64_t step) {
  ReferenceScope scope;
  scope.set_step(step);
  return scope;
}

// Processes a, b and c, and the messages between them, which wait until the test lets them arrive.
class ReferenceSpaceTest : public ::testing::Test {
 protected:
  struct Letter {
    size_t from;
    ToOwner message;
  };

  ReferenceSpaceTest() {
    for (size_t i = 0; i < 3; ++i) Start(i);
  }

  void Start(size_t index) {
    ReferenceSpace::Options options;
    options.job = "test";
    options.incarnation = 100 * ++incarnations_ + index;
    options.address = std::string(1, static_cast<char>('a' + index));
    options.lease = kLease;
    options.draw_session = [this] { return ++sessions_; };
    spaces_[index] = std::make_unique<ReferenceSpace>(
        options, ReferenceOwner::Observer{[this](const ReferenceId& id, ReferenceOwner::Why why) {
                                            freed_.emplace_back(id, why);
                                          },
                                          nullptr});
  }

  ReferenceSpace& space(size_t index) { return *spaces_[index]; }

  void Collect() {
    for (size_t i = 0; i < 3; ++i) {
      for (ToOwner& message : space(i).TakeOutgoing(now_)) {
        letters_.push_back({i, std::move(message)});
      }
    }
  }

  // Takes the first message of this type off the network.
  template <class Request>
  std::optional<Letter> Take() {
    Collect();
    const auto letter = std::find_if(letters_.begin(), letters_.end(), [](const Letter& one) {
      return std::holds_alternative<Request>(one.message.request);
    });
    if (letter == letters_.end()) return std::nullopt;
    Letter taken = std::move(*letter);
    letters_.erase(letter);
    return taken;
  }

  void Answer(const Letter& letter, absl::StatusOr<FromOwner> answer) {
    Replies replies;
    space(letter.from).OnReply(letter.message.token, std::move(answer), now_, replies);
  }

  // answers: whether the sender hears of it.
  void Arrive(const Letter& letter, bool answers = true) {
    const auto index = static_cast<size_t>(letter.message.address[0] - 'a');
    const auto back = [this, letter, answers](auto reply) {
      if (!answers) return;
      if (reply.ok()) {
        Answer(letter, FromOwner(*std::move(reply)));
      } else {
        Answer(letter, reply.status());
      }
    };
    Replies replies;
    const CallTime time{now_, letter.message.deadline};
    std::visit(
        [&](const auto& request) {
          using Request = std::decay_t<decltype(request)>;
          ReferenceSpace& to = space(index);
          if constexpr (std::is_same_v<Request, OpenSessionRequest>) {
            back(to.OnOpen(request, now_, replies));
          } else if constexpr (std::is_same_v<Request, RenewSessionRequest>) {
            back(to.OnRenew(request, now_, replies));
          } else if constexpr (std::is_same_v<Request, LeaveSessionRequest>) {
            to.OnLeave(request, now_, replies);
          } else if constexpr (std::is_same_v<Request, OutgoingCall>) {
            to.OnCall(request, time, replies, back);
          } else if constexpr (std::is_same_v<Request, ForkRequest>) {
            to.OnFork(request, time, replies, back);
          } else if constexpr (std::is_same_v<Request, DropRequest>) {
            to.OnDrop(request, time, replies, back);
          } else {
            to.OnFetch(request, time, replies, back);
          }
        },
        letter.message.request);
  }

  // Everything arrives, and what was called is run: "make" makes `made`.
  void Settle(int64_t made = 0) {
    for (bool more = true; more;) {
      Collect();
      more = !letters_.empty();
      while (!letters_.empty()) {
        const Letter letter = std::move(letters_.front());
        letters_.pop_front();
        Arrive(letter);
      }
      for (size_t i = 0; i < 3; ++i) {
        for (const auto& run : space(i).TakeRuns()) {
          more = true;
          ran_.push_back(run.function);
          Replies replies;
          space(i).Finish(run, ValueOf(made), now_, replies);
        }
      }
    }
  }

  void Connect(size_t from, const std::string& to) {
    Replies replies;
    space(from).Connect(to, now_, replies, [](const absl::Status&, absl::Time, Replies&) {});
    Settle();
  }

  Handle Call(size_t from, const std::string& to, const std::vector<Handle>& arguments = {},
              const ReferenceScope& scope = {}, bool ahead = false) {
    Replies replies;
    const auto result = space(from).Call(to, "make", arguments, scope, ahead, now_, replies);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.value_or(0);
  }

  void Drop(size_t index, Handle handle) {
    Replies replies;
    space(index).Drop(handle, now_, replies);
  }

  // What a fetch ends with once all has arrived.
  absl::StatusOr<int64_t> Fetch(size_t index, Handle handle, int64_t made = 0) {
    absl::StatusOr<int64_t> number = absl::UnknownError("it did not end");
    {
      Replies replies;
      space(index).Fetch(handle, {now_, now_ + absl::Seconds(30)}, replies,
                         [&number](absl::StatusOr<FetchedValue> fetched) {
                           if (!fetched.ok()) {
                             number = fetched.status();
                           } else if (!fetched->value.ok()) {
                             number = fetched->value.status();
                           } else {
                             number = (*fetched->value)->tensors.at(0).shape.at(0);
                           }
                         });
    }
    Settle(made);
    return number;
  }

  void Pass(absl::Duration time) {
    now_ += time;
    for (size_t i = 0; i < 3; ++i) {
      Replies replies;
      space(i).Tick(now_, replies);
    }
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  uint64_t incarnations_ = 0;
  uint64_t sessions_ = 0;
  std::unique_ptr<ReferenceSpace> spaces_[3];
  std::deque<Letter> letters_;
  std::vector<std::string> ran_;
  std::vector<std::pair<ReferenceId, ReferenceOwner::Why>> freed_;
};

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
