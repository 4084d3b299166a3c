#include "common/shared_memory/local_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/clock/steady_now.h"

namespace parley {
namespace {

std::string AName() {
  return absl::StrCat("parley-test ", ::getpid(), " ", absl::ToUnixNanos(SteadyNow()));
}
absl::Time Soon() { return SteadyNow() + absl::Seconds(20); }

// Two ends of a connection.
struct Pair {
  Pair() {
    const std::string name = AName();
    auto listener = LocalListener::Listen(name);
    EXPECT_TRUE(listener.ok()) << listener.status();
    auto connected = LocalSocket::Connect(name);
    EXPECT_TRUE(connected.ok()) << connected.status();
    auto accepted = (*listener)->Accept();
    EXPECT_TRUE(accepted.ok()) << accepted.status();
    near = *std::move(connected);
    far = *std::move(accepted);
  }
  std::unique_ptr<LocalSocket> near;
  std::unique_ptr<LocalSocket> far;
};

TEST(LocalSocketTest, MessagesComeWholeAndInOrderBothWays) {
  Pair pair;
  ASSERT_TRUE(pair.near->Send("one").ok());
  ASSERT_TRUE(pair.near->Send(std::string(LocalSocket::kMostBytes, 'x')).ok());
  EXPECT_EQ(pair.far->Receive(Soon())->bytes, "one");
  EXPECT_EQ(pair.far->Receive(Soon())->bytes.size(), LocalSocket::kMostBytes);
  ASSERT_TRUE(pair.far->Send("back").ok());
  EXPECT_EQ(pair.near->Receive(Soon())->bytes, "back");
}

TEST(LocalSocketTest, MemoryComesAlong) {
  Pair pair;
  const auto segment = MemorySegment::Create(4096);
  ASSERT_TRUE(segment.ok());
  (*segment)->data()[7] = std::byte{42};
  ASSERT_TRUE(pair.near->Send("here", {(*segment)->fd().get()}).ok());
  const auto message = pair.far->Receive(Soon());
  ASSERT_TRUE(message.ok());
  ASSERT_EQ(message->files.size(), 1u);
  const auto seen = MemorySegment::OfPeer(message->files[0]);
  ASSERT_TRUE(seen.ok()) << seen.status();
  EXPECT_EQ((*seen)->data()[7], std::byte{42});
}

TEST(LocalSocketTest, WaitingEndsAtTheDeadline) {
  Pair pair;
  EXPECT_TRUE(
      absl::IsDeadlineExceeded(pair.near->Receive(SteadyNow() + absl::Milliseconds(20)).status()));
}

TEST(LocalSocketTest, ThePeersEndIsTold) {
  Pair pair;
  ASSERT_TRUE(pair.far->Send("last").ok());
  pair.far.reset();
  EXPECT_EQ(pair.near->Receive(Soon())->bytes, "last");
  EXPECT_TRUE(absl::IsUnavailable(pair.near->Receive(Soon()).status()));
  EXPECT_TRUE(absl::IsUnavailable(pair.near->Send("x")));
}

// Whichever comes first.
TEST(LocalSocketTest, ShutdownEndsAWait) {
  for (int round = 0; round < 200; ++round) {
    Pair pair;
    std::thread ends([&] { pair.near->Shutdown(); });
    EXPECT_TRUE(absl::IsUnavailable(pair.near->Receive(Soon()).status()));
    ends.join();
  }
}

TEST(LocalSocketTest, APeerThatDoesNotReadHoldsNobodyUp) {
  Pair pair;
  absl::Status status;
  for (int i = 0; i < 100'000 && status.ok(); ++i) status = pair.near->Send(std::string(1000, 'x'));
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
}

TEST(LocalSocketTest, MessagesAboveTheLimitsAreNotSent) {
  Pair pair;
  EXPECT_TRUE(
      absl::IsInvalidArgument(pair.near->Send(std::string(LocalSocket::kMostBytes + 1, 'x'))));
  const std::vector<int> files(LocalSocket::kMostFiles + 1, 0);
  EXPECT_TRUE(absl::IsInvalidArgument(pair.near->Send("x", files)));
}

// A peer that is not ours sends what it likes.
TEST(LocalSocketTest, MessagesAboveTheLimitsAreRefused) {
  const std::string name = AName();
  const auto listener = LocalListener::Listen(name);
  ASSERT_TRUE(listener.ok());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, name.size());
  const FileDescriptor peer(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
  ASSERT_EQ(::connect(peer.get(), reinterpret_cast<sockaddr*>(&address),
                      offsetof(sockaddr_un, sun_path) + 1 + name.size()),
            0);
  const auto socket = (*listener)->Accept();
  ASSERT_TRUE(socket.ok());
  const std::string large(LocalSocket::kMostBytes + 1, 'x');
  ASSERT_EQ(::send(peer.get(), large.data(), large.size(), 0), static_cast<ssize_t>(large.size()));
  EXPECT_TRUE(absl::IsInvalidArgument((*socket)->Receive(Soon()).status()));
}

// One of another user connects: it turns away, and so does whoever listens.
TEST(LocalListenerTest, ProcessesOfTwoUsersRefuseEachOther) {
  constexpr uid_t kNobody = 65534;
  constexpr int kStillTheSame = 77;
  const std::string name = AName();
  const auto listener = LocalListener::Listen(name);
  ASSERT_TRUE(listener.ok());
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setuid(kNobody) != 0) ::_exit(kStillTheSame);
    ::_exit(absl::IsPermissionDenied(LocalSocket::Connect(name).status()) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kStillTheSame) {
    GTEST_SKIP() << "a process of this test cannot be another user's: it is not root, or in a "
                    "sandbox that knows one user";
  }
  EXPECT_EQ(WEXITSTATUS(status), 0);
  // Its connection has come first, and is passed over.
  const auto own = LocalSocket::Connect(name);
  ASSERT_TRUE(own.ok()) << own.status();
  ASSERT_TRUE((*own)->Send("own").ok());
  const auto accepted = (*listener)->Accept();
  ASSERT_TRUE(accepted.ok());
  const auto message = (*accepted)->Receive(Soon());
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->bytes, "own");
}

TEST(LocalListenerTest, ANameIsTakenOnceAndFreeAgainWhenItsListenerHasGone) {
  const std::string name = AName();
  auto listener = LocalListener::Listen(name);
  ASSERT_TRUE(listener.ok());
  EXPECT_TRUE(absl::IsUnavailable(LocalListener::Listen(name).status()));
  listener->reset();
  EXPECT_TRUE(absl::IsUnavailable(LocalSocket::Connect(name).status()));
  EXPECT_TRUE(LocalListener::Listen(name).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(LocalListener::Listen(std::string(200, 'x')).status()));
}

TEST(LocalListenerTest, ShutdownEndsAccept) {
  for (int round = 0; round < 200; ++round) {
    const auto listener = LocalListener::Listen(AName());
    ASSERT_TRUE(listener.ok());
    std::thread ends([&] { (*listener)->Shutdown(); });
    EXPECT_TRUE(absl::IsUnavailable((*listener)->Accept().status()));
    ends.join();
  }
}

}  // namespace
}  // namespace parley
