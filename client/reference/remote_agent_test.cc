#include "client/reference/remote_agent.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "client/reference/local_reference_link.h"
#include "client/reference/values_for_test.h"
#include "common/clock/steady_now.h"
#include "common/rpc/channel.h"
#include "common/shared_memory/local_socket.h"
#include "proto/local_reference.pb.h"
#include "proto/remote_reference.grpc.pb.h"

namespace parley {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLease = absl::Seconds(2);

// How values go.
enum class Way { kShared, kDirect, kGrpc };

RemoteAgent::Options OptionsFor(Way way) {
  RemoteAgent::Options options;
  options.job = "test";
  options.listen = "127.0.0.1:0";
  options.shares_memory = way == Way::kShared;
  options.direct = way != Way::kGrpc;
  return options;
}

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
    began_.WaitForNotification();
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
    const absl::Time deadline = Soon();
    while (b().counts().values != 2 && SteadyNow() < deadline) {
      absl::SleepFor(absl::Milliseconds(5));
    }
    EXPECT_EQ(b().counts().values, 2u);
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
                         ::testing::Values(Way::kShared, Way::kDirect, Way::kGrpc),
                         [](const auto& way) {
                           return way.param == Way::kShared   ? "SharedMemory"
                                  : way.param == Way::kDirect ? "Direct"
                                                              : "Grpc";
                         });

// What one process sends to another, as the other one's function gets it.
class ValuesTest : public ::testing::Test {
 protected:
  explicit ValuesTest(Way way) {
    for (auto& agent : agents_) {
      RemoteAgent::Options options = OptionsFor(way);
      options.at_once = {"keep"};
      auto started = RemoteAgent::Start(
          options, {{"keep",
                     [this](const RemoteCall& call) -> absl::StatusOr<RemoteValue> {
                       absl::StatusOr<ValuePtr> value = call.arguments.at(0).Fetch(Soon());
                       if (!value.ok()) return value.status();
                       absl::MutexLock lock(&mu_);
                       kept_ = *std::move(value);
                       return RemoteValue();
                     }},
                    {"large", [](const RemoteCall&) { return ValueOf(U8, Large()); }},
                    {"echo", [](const RemoteCall& call) -> absl::StatusOr<RemoteValue> {
                       absl::StatusOr<ValuePtr> value = call.arguments.at(0).Fetch(Soon());
                       if (!value.ok()) return value.status();
                       return **value;
                     }}});
      EXPECT_TRUE(started.ok()) << started.status();
      agent = *std::move(started);
    }
    const absl::Status connected = from().Connect(to().address(), Soon());
    EXPECT_TRUE(connected.ok()) << connected;
  }

  RemoteAgent& from() { return *agents_[0]; }
  RemoteAgent& to() { return *agents_[1]; }

  // The value as it came.
  ValuePtr Sent(const std::vector<float>& numbers) {
    {
      absl::MutexLock lock(&mu_);
      kept_ = nullptr;
    }
    const auto called = from().Call(to().address(), "keep", {from().Make(Numbers(numbers))});
    EXPECT_TRUE(called.ok()) << called.status();
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(
        +[](ValuePtr* kept) { return *kept != nullptr; }, &kept_));
    return std::exchange(kept_, nullptr);
  }

  // More than gRPC takes.
  static std::vector<char> Large() { return std::vector<char>(80 << 20, 'x'); }
  void ExpectLarge(const absl::StatusOr<ValuePtr>& value) {
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_TRUE(ElementsOf<char>(**value) == Large());
  }

  static const std::byte* Begin(const RemoteValue& value) {
    return value.tensors.at(0).bytes.pieces().front().data();
  }

  std::unique_ptr<RemoteAgent> agents_[2];
  absl::Mutex mu_;
  ValuePtr kept_ ABSL_GUARDED_BY(mu_);
};

class SharedMemoryTest : public ValuesTest {
 protected:
  SharedMemoryTest() : ValuesTest(Way::kShared) {
    // The link is asked for with the session, and ready a moment later.
    const absl::Time deadline = Soon();
    while (!IsShared(*Sent(std::vector<float>(8192, 1))) && SteadyNow() < deadline) {
    }
  }

  // Where memory is that processes share, which has no name but its kind's: from, to.
  static std::vector<std::pair<uintptr_t, uintptr_t>> Shared() {
    std::vector<std::pair<uintptr_t, uintptr_t>> shared;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      uintptr_t from = 0;
      uintptr_t to = 0;
      if (absl::StrContains(line, "memfd:parley") &&
          std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR, &from, &to) == 2) {
        shared.emplace_back(from, to);
      }
    }
    return shared;
  }
  static size_t LargestShared() {
    size_t largest = 0;
    for (const auto& [from, to] : Shared()) largest = std::max<size_t>(largest, to - from);
    return largest;
  }
  static bool IsShared(const RemoteValue& value) {
    const auto begin = reinterpret_cast<uintptr_t>(Begin(value));
    for (const auto& [from, to] : Shared()) {
      if (from <= begin && begin < to) return true;
    }
    return false;
  }
};

TEST_F(SharedMemoryTest, ALargeValueStandsWhereItsSenderPutItAndItsBlockIsUsedAgain) {
  ValuePtr first = Sent(std::vector<float>(100'000, 1.5F));
  ASSERT_TRUE(IsShared(*first));
  EXPECT_EQ(NumbersOf(*first), std::vector<float>(100'000, 1.5F));
  // While it is held the next one has another block.
  const ValuePtr second = Sent(std::vector<float>(100'000, 2.5F));
  ASSERT_TRUE(IsShared(*second));
  EXPECT_NE(Begin(*second), Begin(*first));
  EXPECT_EQ(NumbersOf(*first), std::vector<float>(100'000, 1.5F));
  const std::byte* const place = Begin(*first);
  first = nullptr;
  // The sender hears of it on a thread of its own.
  const absl::Time deadline = Soon();
  ValuePtr third = Sent(std::vector<float>(100'000, 3.5F));
  while (Begin(*third) != place && SteadyNow() < deadline) {
    third = Sent(std::vector<float>(100'000, 3.5F));
  }
  EXPECT_EQ(Begin(*third), place);
  EXPECT_EQ(NumbersOf(*third), std::vector<float>(100'000, 3.5F));
  EXPECT_EQ(NumbersOf(*second), std::vector<float>(100'000, 2.5F));
}

// It comes over a direct connection.
TEST_F(SharedMemoryTest, ALargeResultIsFetched) {
  const auto large = from().Call(to().address(), "large", {});
  ASSERT_TRUE(large.ok()) << large.status();
  ExpectLarge(large->Fetch(Soon()));
}

TEST_F(SharedMemoryTest, ASmallValueIsPartOfTheMessage) {
  EXPECT_EQ(NumbersOf(*Sent({1, 2, 3})), std::vector<float>({1, 2, 3}));
}

TEST_F(SharedMemoryTest, ValuesStayWhenTheirSenderHasEnded) {
  const ValuePtr value = Sent(std::vector<float>(50'000, 7));
  ASSERT_TRUE(IsShared(*value));
  agents_[0].reset();
  EXPECT_EQ(NumbersOf(*value), std::vector<float>(50'000, 7));
}

TEST_F(SharedMemoryTest, OfWhoHasGoneNoMemoryStays) {
  constexpr size_t kBytes = 50 << 20;
  ASSERT_TRUE(IsShared(*Sent(std::vector<float>(kBytes / sizeof(float), 1))));
  EXPECT_GE(LargestShared(), kBytes);
  agents_[1].reset();
  const absl::Time deadline = Soon();
  while (LargestShared() >= kBytes && SteadyNow() < deadline) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_LT(LargestShared(), kBytes);
}

TEST_F(SharedMemoryTest, WhatIsWrongCostsItsSenderTheConnectionAlone) {
  LocalCallRequest hello;
  hello.set_call(1);
  hello.set_hello(to().address());
  LocalCallRequest another;
  another.set_hello("127.0.0.1:1");
  LocalCallRequest nowhere;  // a call with a tensor where no memory is
  nowhere.mutable_made()->add_data();
  nowhere.add_blocks()->set_segment(5);
  LocalCallRequest beside = nowhere;
  beside.mutable_blocks(0)->set_data(3);
  LocalCallRequest unknown;
  unknown.add_segments(1);
  for (const std::vector<std::string>& messages : std::vector<std::vector<std::string>>{
           {"rubbish \xff"},
           {another.SerializeAsString()},
           {nowhere.SerializeAsString()},
           {hello.SerializeAsString(), hello.SerializeAsString()},
           {hello.SerializeAsString(), nowhere.SerializeAsString()},
           {hello.SerializeAsString(), beside.SerializeAsString()},
           {hello.SerializeAsString(), unknown.SerializeAsString()}}) {
    auto socket = LocalSocket::Connect(LocalReferenceName(to().address()));
    ASSERT_TRUE(socket.ok()) << socket.status();
    for (const std::string& message : messages) (void)(*socket)->Send(message);
    absl::Status end;
    while (end.ok()) end = (*socket)->Receive(Soon()).status();
    EXPECT_TRUE(absl::IsUnavailable(end)) << end;
  }
  EXPECT_TRUE(IsShared(*Sent(std::vector<float>(100'000, 1.5F))));
}

class DirectValuesTest : public ValuesTest {
 protected:
  DirectValuesTest() : ValuesTest(Way::kDirect) {
    const absl::Time deadline = Soon();
    while (to().counts().direct == 0 && SteadyNow() < deadline) Sent({1});
  }
};

TEST_F(DirectValuesTest, AValueComesInOnePieceWhereLibTorchCanUseItAndItsMemoryIsUsedAgain) {
  ValuePtr first = Sent(std::vector<float>(100'000, 1.5F));
  EXPECT_EQ(first->tensors.at(0).bytes.pieces().size(), 1u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(Begin(*first)) % 64, 0u);
  const ValuePtr second = Sent(std::vector<float>(100'000, 2.5F));
  EXPECT_EQ(NumbersOf(*first), std::vector<float>(100'000, 1.5F));
  EXPECT_EQ(NumbersOf(*second), std::vector<float>(100'000, 2.5F));
  const std::byte* const place = Begin(*first);
  first = nullptr;
  const ValuePtr third = Sent(std::vector<float>(100'000, 3.5F));
  EXPECT_EQ(Begin(*third), place);
  EXPECT_EQ(NumbersOf(*third), std::vector<float>(100'000, 3.5F));
}

TEST_F(DirectValuesTest, WhatIsFetchedComesSoToo) {
  const auto echo = from().Call(to().address(), "echo", {from().Make(Numbers({6, 7}))});
  ASSERT_TRUE(echo.ok()) << echo.status();
  const size_t calls = to().counts().direct;
  const absl::StatusOr<ValuePtr> value = echo->Fetch(Soon());
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(NumbersOf(**value), std::vector<float>({6, 7}));
  EXPECT_GT(to().counts().direct, calls) << "besides the call";
}

// This process's ends of connections to that port are closed, as by a network that fails.
void BreakConnectionsTo(uint32_t port) {
  for (int fd = 0; fd < 4096; ++fd) {
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
    if (peer.sin_family == AF_INET && ntohs(peer.sin_port) == port) ::shutdown(fd, SHUT_RDWR);
  }
}

TEST_F(DirectValuesTest, WhatIsTooLargeForGrpcWaitsForAConnection) {
  const auto large = from().Call(to().address(), "large", {});
  ASSERT_TRUE(large.ok()) << large.status();
  ExpectLarge(large->Fetch(Soon()));
  const auto stub = RemoteReferences::NewStub(MakeChannel(to().address(), nullptr));
  grpc::ClientContext context;
  FindDirectReply found;
  ASSERT_TRUE(stub->FindDirect(&context, {}, &found).ok());
  BreakConnectionsTo(found.port());
  // Now another one is not even tried for a second.
  ExpectLarge(large->Fetch(Soon()));
}

TEST_F(DirectValuesTest, ValuesStayWhenTheirSenderHasEnded) {
  const ValuePtr value = Sent(std::vector<float>(50'000, 7));
  agents_[0].reset();
  EXPECT_EQ(NumbersOf(*value), std::vector<float>(50'000, 7));
}

TEST(ValueBlocksTest, NeverHasMoreThanItMay) {
  ValueBlocks blocks(4 << 16);
  const auto first = blocks.Take(100);
  ASSERT_TRUE(first.ok());
  const auto second = blocks.Take(3 << 16);
  ASSERT_TRUE(second.ok());
  EXPECT_TRUE(absl::IsResourceExhausted(blocks.Take(100).status()));
  EXPECT_TRUE(blocks.GiveBack(first->number).ok());
  EXPECT_FALSE(blocks.GiveBack(first->number).ok());
  EXPECT_FALSE(blocks.GiveBack(77).ok());
  const auto again = blocks.Take(1 << 16);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->number, first->number);
  EXPECT_TRUE(blocks.TakeGone().empty());
  // A much smaller one does not take it, and another size makes room.
  EXPECT_TRUE(blocks.GiveBack(second->number).ok());
  const auto third = blocks.Take(1 << 16);
  ASSERT_TRUE(third.ok());
  EXPECT_NE(third->number, second->number);
  EXPECT_EQ(blocks.TakeGone(), std::vector<uint32_t>{second->number});
  EXPECT_EQ(blocks.bytes(), size_t{2} << 16);
}

}  // namespace
}  // namespace parley
