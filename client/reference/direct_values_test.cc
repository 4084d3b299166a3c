// Values that go over direct connections.
#include <arpa/inet.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/reference/values_fixture.h"
#include "common/clock/testing/becomes.h"
#include "common/rpc/channel.h"
#include "proto/remote_reference.grpc.pb.h"

namespace parley {
namespace {

class DirectValuesTest : public ValuesTest, public ::testing::WithParamInterface<Way> {
 protected:
  DirectValuesTest() : ValuesTest(GetParam()) {
    EXPECT_TRUE(Becomes([this] {
      Sent({1});
      return to().counts().direct != 0;
    }));
  }
};

TEST_P(DirectValuesTest, AValueComesInOnePieceWhereLibTorchCanUseItAndItsMemoryIsUsedAgain) {
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

TEST_P(DirectValuesTest, WhatIsFetchedComesSoToo) {
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

TEST_P(DirectValuesTest, WhatIsTooLargeForGrpcWaitsForAConnection) {
  const auto large = from().Call(to().address(), "large", {});
  ASSERT_TRUE(large.ok()) << large.status();
  ExpectLarge(large->Fetch(Soon()));
  const auto stub =
      RemoteReferences::NewStub(MakeChannel(to().address(), OptionsFor(GetParam()).credentials));
  grpc::ClientContext context;
  FindDirectReply found;
  ASSERT_TRUE(stub->FindDirect(&context, {}, &found).ok());
  BreakConnectionsTo(found.port());
  // Now another one is not even tried for a second.
  ExpectLarge(large->Fetch(Soon()));
}

TEST_P(DirectValuesTest, ValuesStayWhenTheirSenderHasEnded) {
  const ValuePtr value = Sent(std::vector<float>(50'000, 7));
  agents_[0].reset();
  EXPECT_EQ(NumbersOf(*value), std::vector<float>(50'000, 7));
}

INSTANTIATE_TEST_SUITE_P(Both, DirectValuesTest, ::testing::Values(Way::kDirect, Way::kDirectTls),
                         [](const auto& way) {
                           return way.param == Way::kDirect ? "Plain" : "Tls";
                         });

}  // namespace
}  // namespace parley
