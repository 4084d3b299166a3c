#include "client/reference/remote_agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "client/reference/agent_options_for_test.h"
#include "client/reference/values_for_test.h"
#include "common/clock/steady_now.h"
#include "common/clock/testing/becomes.h"

namespace parley {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLease = absl::Seconds(2);

// Agents a, b and c of one job, each with the functions of the test, all connected.
class RemoteAgentTest : public ::testing::TestWithParam<Way> {
 protected:
  RemoteAgentTest() {
    for (auto& agent : agents_) agent = Start();
    for (auto& from : agents_) {
      for (auto& to : agents_) {
        const absl::Status connected = from->Connect(to->address(), Soon());
        EXPECT_TRUE(connected.ok()) << connected;
      }
    }
  }

  std::unique_ptr<RemoteAgent> Start(size_t threads = 2) {
    RemoteAgent::Options options = OptionsFor(GetParam());
    options.lease = kLease;
    options.threads = threads;
    options.at_once = {"add at once"};
    auto agent = RemoteAgent::Start(
        options, {{"add", Add},
                  {"add at once", Add},
                  {"add late",
                   [this](const RemoteCall& call) {
                     began_.Notify();
                     return Add(call);
                   }},
                  {"fail", [](const RemoteCall&) { return absl::DataLossError("lost it"); }},
                  {"throw",
                   [](const RemoteCall&) -> absl::StatusOr<RemoteValue> {
                     throw std::runtime_error("thrown");
                   }},
                  {"wait", [this](const RemoteCall&) -> absl::StatusOr<RemoteValue> {
                     go_on_.WaitForNotificationWithTimeout(absl::Seconds(30));
                     return Numbers({1});
                   }}});
    EXPECT_TRUE(agent.ok()) << agent.status();
    return *std::move(agent);
  }

  RemoteAgent& a() { return *agents_[0]; }
  RemoteAgent& b() { return *agents_[1]; }
  RemoteAgent& c() { return *agents_[2]; }

  std::vector<float> Fetched(const RemoteReference& reference) {
    const absl::StatusOr<ValuePtr> value = reference.Fetch(Soon());
    EXPECT_TRUE(value.ok()) << value.status();
    return value.ok() ? NumbersOf(**value) : std::vector<float>();
  }

  // Nothing lives or is held anywhere, soon.
  void ExpectAllEmpty() {
    const absl::Time deadline = SteadyNow() + 5 * kLease;
    for (auto& agent : agents_) {
      if (agent == nullptr) continue;
      RemoteAgent::Counts counts = agent->counts();
      while (counts.values + counts.held != 0 && SteadyNow() < deadline) {
        absl::SleepFor(absl::Milliseconds(5));
        counts = agent->counts();
      }
      EXPECT_EQ(counts.values, 0u);
      EXPECT_EQ(counts.held, 0u);
    }
  }

  absl::Notification began_;
  absl::Notification go_on_;
  std::unique_ptr<RemoteAgent> agents_[3];
};

TEST_P(RemoteAgentTest, AFunctionRunsElsewhereOnValuesFromHere) {
  {
    const auto sum =
        a().Call(b().address(), "add", {a().Make(Numbers({1, 2})), a().Make(Numbers({10, 20}))});
    ASSERT_TRUE(sum.ok()) << sum.status();
    EXPECT_EQ(Fetched(*sum), (std::vector<float>{11, 22}));
  }
  ExpectAllEmpty();
}

TEST_P(RemoteAgentTest, AResultIsPassedOnBeforeItIsThere) {
  {
    const auto first = a().Call(b().address(), "add", {a().Make(Numbers({1}))});
    ASSERT_TRUE(first.ok());
    // c fetches it from b; a never has it.
    const auto second = a().Call(c().address(), "add", {*first, *first, a().Make(Numbers({5}))});
    ASSERT_TRUE(second.ok());
    // And back to b, which has one of the two itself.
    const auto third = a().Call(b().address(), "add", {*first, *second});
    ASSERT_TRUE(third.ok());
    EXPECT_EQ(Fetched(*third), (std::vector<float>{8}));
  }
  ExpectAllEmpty();
}

TEST_P(RemoteAgentTest, AProcessMayCallItself) {
  const auto sum = a().Call(a().address(), "add", {a().Make(Numbers({1})), a().Make(Numbers({2}))});
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_EQ(Fetched(*sum), (std::vector<float>{3}));
}

TEST_P(RemoteAgentTest, LargeValuesComeWhole) {
  std::vector<float> numbers(3 << 20);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i % 1000);
  const auto sum = a().Call(b().address(), "add", {a().Make(Numbers(numbers))});
  ASSERT_TRUE(sum.ok());
  EXPECT_TRUE(Fetched(*sum) == numbers);
}

TEST_P(RemoteAgentTest, AnErrorStandsInPlaceOfTheValue) {
  const auto failed = a().Call(b().address(), "fail", {});
  ASSERT_TRUE(failed.ok());
  const absl::Status error = failed->Fetch(Soon()).status();
  EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(error.message()), HasSubstr("lost it"));

  const auto thrown = a().Call(b().address(), "throw", {});
  ASSERT_TRUE(thrown.ok());
  EXPECT_EQ(thrown->Fetch(Soon()).status().code(), absl::StatusCode::kInternal);

  const auto unknown = a().Call(b().address(), "no such", {});
  ASSERT_TRUE(unknown.ok());
  EXPECT_EQ(unknown->Fetch(Soon()).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unknown->Fetch(Soon()).status().message()), HasSubstr("no such"));

  // Who gets a failed value gets its error.
  const auto after = a().Call(c().address(), "add", {*failed});
  ASSERT_TRUE(after.ok());
  EXPECT_EQ(after->Fetch(Soon()).status().code(), absl::StatusCode::kDataLoss);
}

TEST_P(RemoteAgentTest, WhoeverIsNotThereIsNamed) {
  const std::string nobody = "127.0.0.1:1";
  EXPECT_EQ(a().Call(nobody, "add", {}).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(a().Connect(nobody, SteadyNow() + absl::Milliseconds(300)).code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(a().Call(b().address(), "add", {RemoteReference()}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(a().Call(b().address(), "add", {b().Make(Numbers({1}))}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(RemoteAgentTest, AFetchEndsByItsDeadline) {
  const auto slow = a().Call(b().address(), "wait", {});
  ASSERT_TRUE(slow.ok());
  EXPECT_EQ(slow->Fetch(SteadyNow() + absl::Milliseconds(100)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  go_on_.Notify();
  EXPECT_EQ(Fetched(*slow), (std::vector<float>{1}));
}

TEST_P(RemoteAgentTest, AnOwnerThatEndsIsNoticedByAllWhoHold) {
  const auto slow = a().Call(b().address(), "wait", {});
  ASSERT_TRUE(slow.ok());
  const auto waits = c().Make(Numbers({1}));
  const std::string address = b().address();
  const RemoteReference made = b().Make(Numbers({2}));
  go_on_.Notify();
  agents_[1].reset();
  const absl::Status lost = slow->Fetch(Soon()).status();
  EXPECT_EQ(lost.code(), absl::StatusCode::kAborted) << lost;
  EXPECT_THAT(std::string(lost.message()), HasSubstr(address));
  EXPECT_EQ(made.Fetch(Soon()).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(Fetched(waits), (std::vector<float>{1}));
}

TEST_P(RemoteAgentTest, WhatWhoEndsHasHeldIsFreed) {
  const auto made = a().Call(b().address(), "add", {a().Make(Numbers({1}))});
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(Fetched(*made), (std::vector<float>{1}));
  EXPECT_EQ(b().counts().values, 1u);
  agents_[0].reset();
  ExpectAllEmpty();
}

TEST_P(RemoteAgentTest, AStepEndsWithAllItsValues) {
  ReferenceScope scope;
  scope.set_step(3);
  {
    const RemoteReference here = a().Make(Numbers({1}), scope);
    const auto there = a().Call(b().address(), "add", {here}, scope);
    ASSERT_TRUE(there.ok());
    EXPECT_EQ(Fetched(*there), (std::vector<float>{1}));
    for (auto& agent : agents_) agent->EndStep(StepOf(scope));
    EXPECT_EQ(here.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(there->Fetch(Soon()).status().code(), absl::StatusCode::kFailedPrecondition);
  }
  ExpectAllEmpty();
}

TEST_P(RemoteAgentTest, AServerWithOneThreadStillMakesProgress) {
  agents_[1] = Start(/*threads=*/1);
  for (RemoteAgent* other : {&a(), &c()}) {
    ASSERT_EQ(other->Connect(b().address(), Soon()), absl::OkStatus());
    // Once more: then the other one knows that the session is in use, and values go along.
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(b().Connect(other->address(), Soon()), absl::OkStatus());
    }
  }
  {
    const auto slow = a().Call(c().address(), "wait", {});
    ASSERT_TRUE(slow.ok()) << slow.status();
    const auto late = a().Call(b().address(), "add late", {*slow});
    ASSERT_TRUE(late.ok()) << late.status();
    ASSERT_TRUE(began_.WaitForNotificationWithTimeout(absl::Seconds(30)));
    // b's thread waits in Fetch. Calls, a function that runs at once, and fetches:
    const auto behind = a().Call(b().address(), "add", {a().Make(Numbers({3}))});
    ASSERT_TRUE(behind.ok()) << behind.status();
    {
      const auto at_once = a().Call(b().address(), "add at once", {a().Make(Numbers({2}))});
      ASSERT_TRUE(at_once.ok()) << at_once.status();
      EXPECT_EQ(Fetched(*at_once), (std::vector<float>{2}));
      // A Fork, of c's.
      const auto passed_on = a().Call(c().address(), "add", {*at_once});
      ASSERT_TRUE(passed_on.ok()) << passed_on.status();
      EXPECT_EQ(Fetched(*passed_on), (std::vector<float>{2}));
    }
    // Drops: of the three results that b has had two are left.
    EXPECT_TRUE(Becomes([this] { return b().counts().values == 2; })) << b().counts().values;
    // Renews.
    absl::SleepFor(1.5 * kLease);
    EXPECT_EQ(late->status(), absl::OkStatus());
    EXPECT_EQ(behind->status(), absl::OkStatus());
    go_on_.Notify();
    EXPECT_EQ(Fetched(*late), (std::vector<float>{1}));
    EXPECT_EQ(Fetched(*behind), (std::vector<float>{3}));
  }
  ExpectAllEmpty();
}

INSTANTIATE_TEST_SUITE_P(All, RemoteAgentTest,
                         ::testing::Values(Way::kShared, Way::kDirect, Way::kDirectTls, Way::kGrpc),
                         [](const auto& way) {
                           return way.param == Way::kShared      ? "SharedMemory"
                                  : way.param == Way::kDirect    ? "Direct"
                                  : way.param == Way::kDirectTls ? "DirectTls"
                                                                 : "Grpc";
                         });

}  // namespace
}  // namespace parley
