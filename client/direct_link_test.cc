#include "client/direct_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/clock/await.h"
#include "common/clock/steady_now.h"
#include "common/clock/testing/becomes.h"
#include "common/direct/direct_server.h"
#include "common/direct/tcp_socket.h"
#include "common/direct/tls_context.h"
#include "common/security/credentials_for_test.h"

namespace parley {
namespace {

using ::testing::HasSubstr;

absl::Time Soon() { return SteadyNow() + absl::Seconds(20); }

TensorSlice SliceOf(const std::shared_ptr<const std::string>& bytes) {
  TensorSlice slice;
  slice.slice = 3;
  slice.dtype = U8;
  slice.bytes = std::string_view(*bytes);
  slice.owner = bytes;
  return slice;
}

TensorSlice SliceOf(const std::string& bytes) {
  return SliceOf(std::make_shared<const std::string>(bytes));
}

std::string TextOf(const TensorSlice& slice) {
  std::string text(slice.bytes.size(), '\0');
  slice.bytes.CopyTo(reinterpret_cast<std::byte*>(text.data()));
  return text;
}

// A server with the methods of the test, and a link to it; encrypted, or not.
class DirectLinkTest : public ::testing::TestWithParam<bool> {
 protected:
  DirectLinkTest() {
    server_ = Start();
    auto loop = DirectLoop::Start();
    EXPECT_TRUE(loop.ok()) << loop.status();
    loop_ = *std::move(loop);
    link_ = Link();
    AwaitReady(*link_);
  }
  ~DirectLinkTest() override {
    link_->Close();
    loop_.reset();
  }

  std::unique_ptr<DirectServer> Start() {
    DirectServer::Methods methods;
    // Gives back the message, and the slices.
    methods["Echo"] = [](DirectServer::Call call) {
      DirectRequest reply;
      reply.set_message(call.message);
      call.answer(absl::OkStatus(), reply, std::move(call.slices));
      return absl::OkStatus();
    };
    methods["Refuse"] = [](const DirectServer::Call& call) {
      call.answer(absl::AbortedError("not now"), DirectRequest(), {});
      return absl::OkStatus();
    };
    methods["Keep"] = [this](DirectServer::Call call) {
      absl::MutexLock lock(&mu_);
      kept_.push_back(std::move(call));
      return absl::OkStatus();
    };
    methods["Stop"] = [this](const DirectServer::Call&) {
      go_on_.WaitForNotificationWithTimeout(absl::Seconds(60));
      return absl::OkStatus();
    };
    methods["Hate"] = [](const DirectServer::Call&) {
      return absl::InvalidArgumentError("no such thing");
    };
    DirectServer::Entry entry;
    entry.credentials = credentials_;
    entry.refused = [this](absl::string_view why, const std::string& peer) {
      absl::MutexLock lock(&mu_);
      refused_.insert(std::string(why));
      peers_.insert(peer);
    };
    auto server = DirectServer::Start("127.0.0.1", 1, std::move(methods), entry);
    EXPECT_TRUE(server.ok()) << server.status();
    return *std::move(server);
  }

  // One that finds the server as it is then.
  std::shared_ptr<DirectLink> Link(uint64_t wrong = 0) { return Link(credentials_, wrong); }
  std::shared_ptr<DirectLink> Link(const SharedCredentials& credentials, uint64_t wrong) {
    return std::make_shared<DirectLink>(
        "host:1", *loop_, *TlsContextFor(credentials), std::make_shared<ReceiveBuffers>(1 << 20),
        [this, wrong](absl::Time, const std::shared_ptr<std::string>& peer,
                      const Done<FindDirectReply>& done) {
          ++finds_;
          if (server_ == nullptr) return done(absl::UnavailableError("nobody"));
          *peer = "ipv4:127.0.0.1:1";
          FindDirectReply found = server_->Found();
          found.set_token(found.token() ^ wrong);
          done(found);
        });
  }

  void AwaitReady(DirectLink& link) {
    const absl::Time deadline = Soon();
    while (!link.ready() && SteadyNow() < deadline) {
      link.Open();
      absl::SleepFor(absl::Milliseconds(1));
    }
    EXPECT_TRUE(link.ready());
  }

  // The answer; Unimplemented: not begun.
  absl::StatusOr<DirectLink::Reply> Call(const char* method, const std::string& message,
                                         std::vector<TensorSlice> slices,
                                         absl::Time deadline = Soon()) {
    struct Waiting {
      absl::Notification came;
      absl::StatusOr<DirectLink::Reply> reply;
    };
    const auto waiting = std::make_shared<Waiting>();
    Done<DirectLink::Reply> done = [waiting](absl::StatusOr<DirectLink::Reply> reply) {
      waiting->reply = std::move(reply);
      waiting->came.Notify();
    };
    if (!link_->Call(method, MessageOf(message), std::move(slices), deadline, done)) {
      EXPECT_NE(done, nullptr) << "given back";
      return absl::UnimplementedError("not begun");
    }
    EXPECT_TRUE(waiting->came.WaitForNotificationWithTimeout(absl::Seconds(60)));
    return waiting->reply;
  }

  // The other end of a connection that has sent these bytes.
  FileDescriptor Stranger(std::string_view bytes) {
    auto fd = ConnectTcp("ipv4:127.0.0.1:1", static_cast<uint16_t>(server_->Found().port()));
    EXPECT_TRUE(fd.ok()) << fd.status();
    pollfd connected = {fd->get(), POLLOUT, 0};
    EXPECT_EQ(::poll(&connected, 1, 20000), 1);
    EXPECT_EQ(::send(fd->get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    return *std::move(fd);
  }
  // Whether the server ends it, long before it has waited for a hello in vain.
  static bool IsEnded(const FileDescriptor& fd, absl::Duration within = absl::Seconds(5)) {
    pollfd ended = {fd.get(), POLLIN | POLLRDHUP, 0};
    return ::poll(&ended, 1, static_cast<int>(absl::ToInt64Milliseconds(within))) == 1;
  }

  // Who was refused until now, once they are so many.
  std::multiset<std::string> Refused(size_t count) {
    absl::MutexLock lock(&mu_);
    const auto all_told = [this, count]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return refused_.size() >= count;
    };
    mu_.AwaitWithTimeout(absl::Condition(&all_told), absl::Seconds(20));
    return refused_;
  }

  static std::string BytesOf(const DirectFrame& frame, std::vector<TensorSlice> slices = {}) {
    OutgoingFrame outgoing(frame, std::move(slices));
    iovec part;
    EXPECT_EQ(outgoing.Parts(absl::MakeSpan(&part, 1)), 1u);
    return {static_cast<const char*>(part.iov_base), part.iov_len};
  }

  static DirectRequest MessageOf(const std::string& text) {
    DirectRequest message;
    message.set_message(text);
    return message;
  }

  // One that does not get in waits before it tries again.
  void ExpectShutOut(const std::shared_ptr<DirectLink>& link) {
    link->Open();
    const int finds = finds_;
    const absl::Time deadline = Soon();
    while (finds_ == finds && SteadyNow() < deadline) {
      EXPECT_FALSE(link->ready());
      link->Open();  // again, when it has rested
      absl::SleepFor(absl::Milliseconds(5));
    }
    EXPECT_GT(finds_, finds);
    link->Close();
  }

  const SharedCredentials credentials_ = GetParam() ? OwnTlsCredentials() : nullptr;
  absl::Notification go_on_;
  absl::Mutex mu_;
  std::vector<DirectServer::Call> kept_ ABSL_GUARDED_BY(mu_);
  std::multiset<std::string> refused_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> peers_ ABSL_GUARDED_BY(mu_);  // that were
  std::atomic<int> finds_ = 0;
  std::unique_ptr<DirectServer> server_;
  std::unique_ptr<DirectLoop> loop_;
  std::shared_ptr<DirectLink> link_;
};

TEST_P(DirectLinkTest, ACallAndItsTensorsGoAndComeBack) {
  const std::string large(5 << 20, 'x');
  const auto reply = Call("Echo", "words", {SliceOf("small"), SliceOf(large), SliceOf("")});
  ASSERT_TRUE(reply.ok()) << reply.status();
  // The message that came is the reply's whole message, once more.
  DirectRequest outer, inner;
  ASSERT_TRUE(outer.ParseFromString(reply->message));
  ASSERT_TRUE(inner.ParseFromString(outer.message()));
  EXPECT_EQ(inner.message(), "words");
  ASSERT_EQ(reply->slices.size(), 3u);
  EXPECT_EQ(TextOf(reply->slices[0]), "small");
  EXPECT_TRUE(TextOf(reply->slices[1]) == large);
  EXPECT_EQ(TextOf(reply->slices[2]), "");
  EXPECT_EQ(reply->slices[0].slice, 3u);
  EXPECT_EQ(reply->slices[0].dtype, U8);
}

TEST_P(DirectLinkTest, AnErrorComesAsItWas) {
  const absl::Status refused = Call("Refuse", "", {}).status();
  EXPECT_TRUE(absl::IsAborted(refused));
  EXPECT_EQ(refused.message(), "not now");
}

TEST_P(DirectLinkTest, CallsOfOneThreadComeInTheirOrder) {
  constexpr size_t kCalls = 200;
  const auto answered = std::make_shared<std::atomic<size_t>>(0);
  for (size_t i = 0; i < kCalls; ++i) {
    Done<DirectLink::Reply> done = [answered](const absl::StatusOr<DirectLink::Reply>& reply) {
      EXPECT_TRUE(reply.ok()) << reply.status();
      ++*answered;
    };
    const std::string body(i % 7 == 0 ? 300000 : 10, 'b');
    ASSERT_TRUE(link_->Call("Keep", MessageOf(absl::StrCat(i)), {SliceOf(body)}, Soon(), done));
  }
  absl::MutexLock lock(&mu_);
  const absl::Condition came(
      +[](std::vector<DirectServer::Call>* kept) { return kept->size() == kCalls; }, &kept_);
  ASSERT_TRUE(AwaitFor(mu_, came, absl::Seconds(20))) << kept_.size() << " have come";
  for (size_t i = 0; i < kCalls; ++i) {
    DirectRequest message;
    ASSERT_TRUE(message.ParseFromString(kept_[i].message));
    EXPECT_EQ(message.message(), absl::StrCat(i));
    kept_[i].answer(absl::OkStatus(), DirectRequest(), {});
  }
  EXPECT_TRUE(Becomes([&] { return *answered == kCalls; })) << *answered << " are answered";
}

TEST_P(DirectLinkTest, AnAnswerThatDoesNotComeIsADeadline) {
  const absl::Status late = Call("Keep", "", {}, SteadyNow() + absl::Milliseconds(50)).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  EXPECT_THAT(std::string(late.message()), HasSubstr("host:1"));
  EXPECT_TRUE(link_->ready()) << "others may be answered";
  // It comes after all, and nobody minds.
  {
    absl::MutexLock lock(&mu_);
    kept_.at(0).answer(absl::OkStatus(), DirectRequest(), {});
  }
  EXPECT_TRUE(Call("Echo", "", {}).ok());
}

TEST_P(DirectLinkTest, BytesThatHaveNotGoneAtTheDeadlineNeverGo) {
  Done<DirectLink::Reply> stops = [](const absl::StatusOr<DirectLink::Reply>&) {};
  ASSERT_TRUE(link_->Call("Stop", MessageOf(""), {}, Soon(), stops));
  // The server does not read: most of these stay here.
  const auto bytes = std::make_shared<const std::string>(size_t{60} << 20, 'x');
  const std::weak_ptr<const std::string> alive = bytes;
  std::vector<TensorSlice> slices(4, SliceOf(bytes));
  const absl::Status late =
      Call("Echo", "", std::move(slices), SteadyNow() + absl::Milliseconds(200)).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  EXPECT_EQ(bytes.use_count(), 1) << "somebody may still read them";
  go_on_.Notify();
  AwaitReady(*link_);
  EXPECT_TRUE(Call("Echo", "", {}).ok()) << "over another connection";
}

TEST_P(DirectLinkTest, WhatIsGivenUpBeforeItWasSentNeverGoes) {
  Done<DirectLink::Reply> done = [](const absl::StatusOr<DirectLink::Reply>&) {};
  ASSERT_TRUE(link_->Call("Stop", MessageOf(""), {}, Soon(), done));
  const auto bytes = std::make_shared<const std::string>(size_t{60} << 20, 'x');
  absl::Notification ended;
  done = [&](const absl::StatusOr<DirectLink::Reply>& reply) {
    EXPECT_TRUE(absl::IsUnavailable(reply.status())) << reply.status();
    ended.Notify();
  };
  ASSERT_TRUE(link_->Call("Echo", MessageOf(""), {SliceOf(bytes), SliceOf(bytes)}, Soon(), done));
  // The one that stands for "these tensors count".
  Done<DirectLink::Reply> last = [](const absl::StatusOr<DirectLink::Reply>&) {};
  ASSERT_TRUE(link_->Call("Keep", MessageOf(""), {}, Soon(), last));
  link_->DropUnsent();
  EXPECT_EQ(bytes.use_count(), 1) << "somebody may still read them";
  EXPECT_TRUE(ended.WaitForNotificationWithTimeout(absl::Seconds(20)));
  go_on_.Notify();
  AwaitReady(*link_);
  EXPECT_TRUE(Call("Echo", "", {}).ok());
  absl::MutexLock lock(&mu_);
  EXPECT_TRUE(kept_.empty());
}

TEST_P(DirectLinkTest, WhatWasSentIsNotGivenUp) {
  Done<DirectLink::Reply> done = [](const absl::StatusOr<DirectLink::Reply>&) {};
  ASSERT_TRUE(link_->Call("Keep", MessageOf(""), {}, Soon(), done));
  link_->DropUnsent();
  EXPECT_TRUE(Call("Echo", "", {}).ok()) << "over the same connection";
  EXPECT_EQ(finds_, 1);
}

TEST_P(DirectLinkTest, WhatIsGivenUpWhileItIsBeingMadeEndsItNot) {
  const std::shared_ptr<DirectLink> other = Link();
  const int finds = finds_;
  other->Open();
  const absl::Time deadline = Soon();
  while (!other->ready() && SteadyNow() < deadline) other->DropUnsent();
  EXPECT_TRUE(other->ready());
  EXPECT_EQ(finds_, finds + 1) << "it was made more than once";
  other->Close();
}

TEST_P(DirectLinkTest, WhatIsLargerThanAFrameMayBeIsNotBegun) {
  const auto bytes = std::make_shared<const std::string>(kMostTensorBytes / 2 + 1, 'x');
  EXPECT_TRUE(absl::IsUnimplemented(Call("Echo", "", {SliceOf(bytes), SliceOf(bytes)}).status()));
  EXPECT_TRUE(Call("Echo", "", {}).ok());
}

TEST_P(DirectLinkTest, AServerThatGoesAndComesIsFoundAgain) {
  Done<DirectLink::Reply> done;
  absl::Notification lost;
  done = [&](const absl::StatusOr<DirectLink::Reply>& reply) {
    EXPECT_TRUE(absl::IsUnavailable(reply.status())) << reply.status();
    lost.Notify();
  };
  ASSERT_TRUE(link_->Call("Keep", MessageOf(""), {}, Soon(), done));
  server_.reset();
  EXPECT_TRUE(lost.WaitForNotificationWithTimeout(absl::Seconds(20)));
  EXPECT_TRUE(absl::IsUnimplemented(Call("Echo", "", {}).status()));
  // An answer that comes too late.
  {
    absl::MutexLock lock(&mu_);
    for (DirectServer::Call& call : kept_) call.answer(absl::OkStatus(), DirectRequest(), {});
  }
  server_ = Start();
  AwaitReady(*link_);
  EXPECT_TRUE(Call("Echo", "", {}).ok());
}

TEST_P(DirectLinkTest, AnotherProcessThanWasFoundIsNotCalled) {
  ExpectShutOut(Link(/*wrong=*/1));
  EXPECT_THAT(Refused(1),
              testing::AllOf(testing::Not(testing::IsEmpty()), testing::Each("wrong token")));
}

TEST_P(DirectLinkTest, ACallThatIsNoneCostsTheConnection) {
  EXPECT_TRUE(absl::IsUnavailable(Call("Hate", "", {}).status()));
  AwaitReady(*link_);
  EXPECT_TRUE(absl::IsUnavailable(Call("no such", "", {}).status()));
  AwaitReady(*link_);
  EXPECT_TRUE(Call("Echo", "", {}).ok());
}

// What strangers say in plain words.
using PlainDirectLinkTest = DirectLinkTest;

TEST_P(PlainDirectLinkTest, WhoSaysNoHelloIsNotHeard) {
  DirectFrame frame;
  frame.mutable_request()->set_method("Keep");
  const FileDescriptor stranger = Stranger(BytesOf(frame));
  sockaddr_in own{};
  socklen_t size = sizeof(own);
  ASSERT_EQ(::getsockname(stranger.get(), reinterpret_cast<sockaddr*>(&own), &size), 0);
  EXPECT_TRUE(IsEnded(stranger));
  EXPECT_THAT(Refused(1), testing::ElementsAre("garbage"));
  absl::MutexLock lock(&mu_);
  EXPECT_THAT(peers_, testing::ElementsAre(absl::StrCat("127.0.0.1:", ntohs(own.sin_port))));
  EXPECT_TRUE(kept_.empty());
}

TEST_P(PlainDirectLinkTest, OfOneWhoHasSaidNoHelloNoMoreIsTakenThanThat) {
  // Ended by what its first bytes say, and not when all of it has come.
  DirectFrame frame;
  frame.mutable_request()->set_message(std::string(kGreetingLimits.frame_bytes, 'x'));
  EXPECT_TRUE(IsEnded(Stranger(BytesOf(frame).substr(0, 100))));
  frame.set_hello(server_->Found().token());
  const std::string bytes(1000, 't');
  EXPECT_TRUE(IsEnded(Stranger(BytesOf(frame, {SliceOf(bytes)}).substr(0, 100))));
  EXPECT_THAT(Refused(2), testing::ElementsAre("garbage", "garbage"));
  // Who has said it is not bound by that.
  EXPECT_TRUE(Call("Echo", std::string(1 << 20, 'x'), {}).ok());
}

TEST_P(DirectLinkTest, WhoSaysNothingMakesRoomForOthers) {
  const FileDescriptor first = Stranger("");
  std::vector<FileDescriptor> more;
  for (int i = 0; i < 255; ++i) more.push_back(Stranger(""));
  // As many as may wait, and one that need not.
  EXPECT_TRUE(Call("Echo", "", {}).ok());
  EXPECT_FALSE(IsEnded(first, absl::Milliseconds(20)));
  more.push_back(Stranger(""));
  EXPECT_TRUE(IsEnded(first));
  EXPECT_FALSE(IsEnded(more.back(), absl::Milliseconds(20)));
  EXPECT_THAT(Refused(1), testing::ElementsAre("idle"));
  const std::shared_ptr<DirectLink> late = Link();
  AwaitReady(*late);
  late->Close();
}

TEST_P(DirectLinkTest, OpenCallsEndWithTheLoop) {
  absl::Notification ended;
  Done<DirectLink::Reply> done = [&](const absl::StatusOr<DirectLink::Reply>& reply) {
    EXPECT_TRUE(absl::IsUnavailable(reply.status())) << reply.status();
    ended.Notify();
  };
  ASSERT_TRUE(link_->Call("Keep", MessageOf(""), {}, Soon(), done));
  link_->Close();
  loop_.reset();
  EXPECT_TRUE(ended.HasBeenNotified());
  EXPECT_TRUE(absl::IsUnimplemented(Call("Echo", "", {}).status()));
}

// Where connections are encrypted.
using TlsDirectLinkTest = DirectLinkTest;

TEST_P(TlsDirectLinkTest, WhoHasNoCertificateOfTheJobIsShutOut) {
  // In plain words, and with those of another job, or none of it but the authority.
  ExpectShutOut(Link(nullptr, 0));
  EXPECT_THAT(Refused(1),
              testing::AllOf(testing::Not(testing::IsEmpty()), testing::Each("garbage")));
  Credentials other = *NewTlsCredentials();
  other.authority = credentials_->authority;
  ExpectShutOut(Link(std::make_shared<const Credentials>(other), 0));
  EXPECT_THAT(Refused(2), testing::Contains("wrong certificate"));
  EXPECT_TRUE(Call("Echo", "", {}).ok());
}

TEST_P(TlsDirectLinkTest, AServerOfAnotherJobIsNotCalled) {
  ExpectShutOut(Link(NewTlsCredentials(), 0));
  absl::MutexLock lock(&mu_);
  EXPECT_THAT(refused_, testing::IsEmpty()) << "it has gone by itself";
}

TEST_P(TlsDirectLinkTest, NothingIsReadOfOneWhoSpeaksInPlainWords) {
  DirectFrame frame;
  frame.set_hello(server_->Found().token());
  EXPECT_TRUE(IsEnded(Stranger(BytesOf(frame))));
  EXPECT_THAT(Refused(1), testing::ElementsAre("garbage"));
}

std::string Name(const testing::TestParamInfo<bool>& info) { return info.param ? "Tls" : "Plain"; }
INSTANTIATE_TEST_SUITE_P(Both, DirectLinkTest, testing::Bool(), Name);
INSTANTIATE_TEST_SUITE_P(Alone, PlainDirectLinkTest, testing::Values(false), Name);
INSTANTIATE_TEST_SUITE_P(Alone, TlsDirectLinkTest, testing::Values(true), Name);

}  // namespace
}  // namespace parley
