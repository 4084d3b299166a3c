// Values that go through memory that both processes share.
#include <gtest/gtest.h>

#include <algorithm>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "client/reference/local_reference_link.h"
#include "client/reference/values_fixture.h"
#include "common/clock/steady_now.h"
#include "common/clock/testing/becomes.h"
#include "common/shared_memory/local_socket.h"
#include "proto/local_reference.pb.h"

namespace parley {
namespace {

class SharedMemoryTest : public ValuesTest {
 protected:
  SharedMemoryTest() : ValuesTest(Way::kShared) {
    // The link is asked for with the session, and ready a moment later.
    EXPECT_TRUE(Becomes([this] { return IsShared(*Sent(std::vector<float>(8192, 1))); }));
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
  EXPECT_TRUE(Becomes([] { return LargestShared() < kBytes; })) << LargestShared();
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

}  // namespace
}  // namespace parley
