// What strangers can do to a server: be refused, be counted, and cost it a bounded amount.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/clock/steady_now.h"
#include "common/connect_for_test.h"
#include "common/file_descriptor.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/reply.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "common/security/new_credentials.h"
#include "proto/coordinator.grpc.pb.h"

namespace parley {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr absl::Duration kLongest = absl::Minutes(1);

// Counts the calls that have got through to it.
class Counting final : public Coordinator::CallbackService {
 public:
  grpc::ServerUnaryReactor* ReportReady(grpc::CallbackServerContext* context,
                                        const ReportReadyRequest*,
                                        ReportReadyReply* reply) override {
    {
      absl::MutexLock lock(&mu_);
      ++calls_;
    }
    auto* reactor = context->DefaultReactor();
    Answer(reactor, reply)(ReportReadyReply());
    return reactor;
  }
  int calls() const {
    absl::MutexLock lock(&mu_);
    return calls_;
  }

 private:
  mutable absl::Mutex mu_;
  int calls_ ABSL_GUARDED_BY(mu_) = 0;
};

// This end of a connection, as the other one sees it.
std::string AddressOf(const FileDescriptor& fd) {
  sockaddr_in own{};
  socklen_t size = sizeof(own);
  EXPECT_EQ(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size), 0);
  return absl::StrCat("127.0.0.1:", ntohs(own.sin_port));
}

SharedCredentials Make(bool tls) {
  auto made = NewCredentials(tls);
  EXPECT_TRUE(made.ok()) << made.status();
  return std::make_shared<const Credentials>(*std::move(made));
}

class StrangerTest : public testing::Test {
 protected:
  void Serve(SharedCredentials credentials) {
    job_ = std::move(credentials);
    auto server = RpcServer::Start("127.0.0.1:0", {&service_}, nullptr,
                                   {job_, [this](absl::string_view why, const std::string& peer) {
                                      absl::MutexLock lock(&mu_);
                                      ++refused_[std::string(why)];
                                      peers_[std::string(why)].push_back(peer);
                                    }});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  absl::Status Call(const SharedCredentials& credentials, size_t bytes = 0,
                    const std::string& header = "") {
    auto stub = Coordinator::NewStub(MakeChannel(server_->address(), credentials));
    grpc::ClientContext context;
    context.set_deadline(ToGrpcDeadline(SteadyNow() + kLongest));
    SayToken(credentials, context);
    if (!header.empty()) context.AddMetadata("stranger", header);
    ReportReadyRequest request;
    request.set_damage(std::string(bytes, 'x'));
    ReportReadyReply reply;
    return FromGrpc(stub->ReportReady(&context, request, &reply), server_->address());
  }

  // A connection without gRPC.
  FileDescriptor Connect() const { return ConnectForTest(server_->address()); }

  bool AwaitRefused(const std::string& why, int count) {
    absl::MutexLock lock(&mu_);
    const auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return refused_[why] >= count; };
    return mu_.AwaitWithTimeout(absl::Condition(&there), kLongest);
  }
  // Of those who were refused for that.
  std::vector<std::string> peers(const std::string& why) {
    absl::MutexLock lock(&mu_);
    return peers_[why];
  }
  int refused() {
    absl::MutexLock lock(&mu_);
    int sum = 0;
    for (const auto& [why, count] : refused_) sum += count;
    return sum;
  }

  Counting service_;
  SharedCredentials job_;
  absl::Mutex mu_;
  std::map<std::string, int> refused_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::vector<std::string>> peers_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<RpcServer> server_;  // last: it tells the rest
};

TEST_F(StrangerTest, WithTlsOnlyTheJobsOwnCertificateGetsThrough) {
  Serve(Make(true));
  EXPECT_EQ(Call(job_), absl::OkStatus());
  EXPECT_EQ(service_.calls(), 1);

  EXPECT_TRUE(absl::IsUnavailable(Call(nullptr)));
  EXPECT_TRUE(AwaitRefused("garbage", 1));

  // Another job's authority the client would not trust either: it is asked about this one's.
  const SharedCredentials other = Make(true);
  Credentials posing = *other;
  posing.authority = job_->authority;
  EXPECT_TRUE(absl::IsUnavailable(Call(std::make_shared<const Credentials>(posing))));
  EXPECT_TRUE(AwaitRefused("wrong certificate", 1));

  EXPECT_TRUE(absl::IsUnavailable(Call(other)));
  EXPECT_EQ(service_.calls(), 1);
  EXPECT_EQ(Call(job_), absl::OkStatus());
}

TEST_F(StrangerTest, WithoutTlsOnlyTheJobsTokenGetsThrough) {
  Serve(Make(false));
  EXPECT_EQ(Call(job_), absl::OkStatus());
  const absl::Status none = Call(nullptr);
  EXPECT_TRUE(absl::IsUnauthenticated(none)) << none;
  EXPECT_NE(none.message().find("credentials"), absl::string_view::npos);
  EXPECT_TRUE(AwaitRefused("no token", 1));
  EXPECT_TRUE(absl::IsUnauthenticated(Call(Make(false))));
  EXPECT_TRUE(AwaitRefused("wrong token", 1));
  EXPECT_THAT(peers("wrong token")[0], StartsWith("perhaps ")) << "gRPC does not say";
  Credentials longer = *job_;
  longer.token += "0";
  EXPECT_TRUE(absl::IsUnauthenticated(Call(std::make_shared<const Credentials>(longer))));
  EXPECT_EQ(service_.calls(), 1);
}

TEST_F(StrangerTest, AnOpenJobTakesCallsThatSayATokenAll) {
  Serve(nullptr);
  EXPECT_EQ(Call(nullptr), absl::OkStatus());
  EXPECT_EQ(Call(Make(false)), absl::OkStatus());
}

TEST_F(StrangerTest, GarbageIsRefusedBeforeGrpcSeesIt) {
  for (const bool tls : {true, false}) {
    Serve(Make(tls));
    std::vector<FileDescriptor> open;
    for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\n\r\n"),
                                     std::string(1 << 20, '\0'), std::string("PLY1xxxx")}) {
      open.push_back(Connect());
      (void)!::send(open.back().get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    EXPECT_TRUE(AwaitRefused("garbage", tls ? 3 : 6)) << refused();
    for (const FileDescriptor& fd : open) EXPECT_THAT(peers("garbage"), Contains(AddressOf(fd)));
    EXPECT_EQ(Call(job_), absl::OkStatus());
  }
}

TEST_F(StrangerTest, WhoSaysNothingMakesRoomForOthers) {
  Serve(Make(true));
  // More than may wait: the first ones are turned away at once, not after their time.
  std::vector<FileDescriptor> idle;
  for (int i = 0; i < 600; ++i) idle.push_back(Connect());
  EXPECT_TRUE(AwaitRefused("idle", 300));
  EXPECT_EQ(peers("idle")[0], AddressOf(idle[0])) << "who came first goes first";
  EXPECT_EQ(Call(job_), absl::OkStatus());
}

TEST_F(StrangerTest, WhoHasAnotherCertificateIsLookedForAmongThoseWhoCameOfLate) {
  Serve(Make(true));
  EXPECT_TRUE(absl::IsUnavailable(Call(nullptr)));
  EXPECT_TRUE(AwaitRefused("garbage", 1));
  Credentials posing = *Make(true);
  posing.authority = job_->authority;
  EXPECT_TRUE(absl::IsUnavailable(Call(std::make_shared<const Credentials>(posing))));
  EXPECT_TRUE(AwaitRefused("wrong certificate", 1));
  const std::string who = peers("wrong certificate")[0];
  EXPECT_THAT(who, HasSubstr("127.0.0.1:"));
  EXPECT_THAT(who + ",", Not(HasSubstr(peers("garbage")[0] + ","))) << "gRPC has never seen him";
}

TEST_F(StrangerTest, WhoOnlyLooksWhetherThePortAnswersIsNoStranger) {
  Serve(Make(true));
  for (int i = 0; i < 10; ++i) Connect();
  Connect();
  EXPECT_EQ(Call(job_), absl::OkStatus());
  EXPECT_EQ(refused(), 0);
}

TEST_F(StrangerTest, MessagesAndHeadersAreBounded) {
  Serve(Make(false));
  // Unread: without the token, and also with it.
  EXPECT_FALSE(Call(Make(false), kMaxMessageBytes - 100).ok());
  EXPECT_FALSE(Call(job_, 0, std::string(1 << 20, 'h')).ok());
  EXPECT_EQ(service_.calls(), 0);
  EXPECT_EQ(Call(job_, 1 << 20), absl::OkStatus());
}

}  // namespace
}  // namespace parley
