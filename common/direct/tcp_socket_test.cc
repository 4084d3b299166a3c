#include "common/direct/tcp_socket.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <cstdint>
#include <utility>

namespace parley {
namespace {

TEST(ListenTcp, APortCanBeTakenAgainWhileConnectionsOfItsFormerOwnerLinger) {
  FileDescriptor peer;
  uint16_t port = 0;
  for (int begun = 0; begun < 3; ++begun) {
    auto listener = ListenTcp("127.0.0.1", port);
    ASSERT_TRUE(listener.ok()) << listener.status() << " when begun for the " << begun << ". time";
    port = listener->port;
    auto connection = ConnectTcp("ipv4:127.0.0.1:1", port);
    ASSERT_TRUE(connection.ok()) << connection.status();
    pollfd come = {listener->fd.get(), POLLIN, 0};
    ASSERT_EQ(::poll(&come, 1, 10000), 1);
    ASSERT_TRUE(AcceptTcp(listener->fd).ok());
    // What was accepted is closed here, and lingers, since the peer keeps its end.
    peer = *std::move(connection);
  }
}

TEST(ListenTcp, APortIsOnlyOnes) {
  const auto first = ListenTcp("127.0.0.1");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(ListenTcp("127.0.0.1", first->port).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace parley
