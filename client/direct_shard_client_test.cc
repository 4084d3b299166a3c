#include "client/direct_shard_client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "client/testing/refusing_peers.h"
#include "common/clock/steady_now.h"
#include "common/direct/direct_server.h"
#include "common/direct/frame.h"

namespace parley {
namespace {

absl::Time Soon() { return SteadyNow() + absl::Seconds(20); }

// The way by gRPC, whose calls wait until the test answers them.
class Remote final : public RefusingShard {
 public:
  void Push(const PushRequest&, absl::Time, Done<PushReply> done) override {
    pushes.push_back(std::move(done));
  }
  void Complete(const CompleteRequest&, absl::Time, Done<CompleteReply> done) override {
    completes.push_back(std::move(done));
  }
  void Pull(const PullRequest&, absl::Time, Done<PullReply>) override { ++pulls; }
  void AnswerPush(const absl::StatusOr<PushReply>& reply) {
    const Done<PushReply> done = std::move(pushes.front());
    pushes.pop_front();
    done(reply);
  }

  std::deque<Done<PushReply>> pushes;
  std::deque<Done<CompleteReply>> completes;
  int pulls = 0;
};

class DirectShardClientTest : public ::testing::Test {
 protected:
  DirectShardClientTest() {
    DirectServer::Methods methods;
    methods["Push"] = [this](const DirectServer::Call& call) {
      ++direct_pushes_;
      call.answer(absl::OkStatus(), PushReply(), {});
      return absl::OkStatus();
    };
    methods["Complete"] = [](const DirectServer::Call&) { return absl::OkStatus(); };  // never
    methods["Pull"] = [](const DirectServer::Call& call) {
      PullReply reply;
      reply.add_slices();  // which belong behind the message
      call.answer(absl::OkStatus(), reply, {});
      return absl::OkStatus();
    };
    server_ = *DirectServer::Start("127.0.0.1", 1, std::move(methods));
    loop_ = *DirectLoop::Start();
    link_ = std::make_shared<DirectLink>(
        "host:1", *loop_, /*tls=*/nullptr, std::make_shared<ReceiveBuffers>(1 << 20),
        [this](absl::Time, const std::shared_ptr<std::string>& peer, Done<FindDirectReply> done) {
          *peer = "ipv4:127.0.0.1:1";
          find_ = std::move(done);
        });
    shard_ = std::make_unique<DirectShardClient>(remote_, link_);
  }
  ~DirectShardClientTest() override {
    shard_.reset();
    loop_.reset();
  }

  // The server has been found.
  void Connect() {
    find_(server_->Found());
    const absl::Time deadline = Soon();
    while (!link_->ready() && SteadyNow() < deadline) absl::SleepFor(absl::Milliseconds(1));
    ASSERT_TRUE(link_->ready());
  }

  void BeginPush() {
    shard_->PushTensors({}, Soon(), [this](const absl::StatusOr<PushReply>& reply) {
      EXPECT_TRUE(reply.ok()) << reply.status();
      ++answers_;
    });
  }
  void Push() {
    absl::Notification came;
    shard_->PushTensors({}, Soon(), [&](const absl::StatusOr<PushReply>& reply) {
      EXPECT_TRUE(reply.ok()) << reply.status();
      came.Notify();
    });
    ASSERT_TRUE(came.WaitForNotificationWithTimeout(absl::Seconds(20)));
  }

  const std::shared_ptr<Remote> remote_ = std::make_shared<Remote>();
  int answers_ = 0;
  std::atomic<int> direct_pushes_ = 0;
  Done<FindDirectReply> find_;
  std::unique_ptr<DirectServer> server_;
  std::unique_ptr<DirectLoop> loop_;
  std::shared_ptr<DirectLink> link_;
  std::unique_ptr<DirectShardClient> shard_;
};

TEST_F(DirectShardClientTest, UntilTheConnectionStandsCallsGoTheOtherWay) {
  BeginPush();
  ASSERT_EQ(remote_->pushes.size(), 1u);
  ASSERT_NE(find_, nullptr) << "and a connection is asked for";
  remote_->AnswerPush(PushReply());
  EXPECT_EQ(answers_, 1);
  ASSERT_NO_FATAL_FAILURE(Connect());
  ASSERT_NO_FATAL_FAILURE(Push());
  EXPECT_TRUE(remote_->pushes.empty());
  EXPECT_EQ(direct_pushes_, 1);
}

TEST_F(DirectShardClientTest, ACompleteMayOvertakePushesThatGoTheOtherWay) {
  EXPECT_FALSE(shard_->KeepsOrder());
  BeginPush();
  BeginPush();
  ASSERT_NO_FATAL_FAILURE(Connect());
  ASSERT_NO_FATAL_FAILURE(Push());
  EXPECT_FALSE(shard_->KeepsOrder()) << "two are still on the other way";
  remote_->AnswerPush(PushReply());
  EXPECT_FALSE(shard_->KeepsOrder());
  remote_->AnswerPush(PushReply());
  EXPECT_TRUE(shard_->KeepsOrder());
}

TEST_F(DirectShardClientTest, WithoutTheConnectionAnOpenAttemptFailsAndTheNextGoesTheOtherWay) {
  BeginPush();
  remote_->AnswerPush(PushReply());
  ASSERT_NO_FATAL_FAILURE(Connect());
  absl::Notification came;
  shard_->Complete({}, Soon(), [&](const absl::StatusOr<CompleteReply>& reply) {
    EXPECT_TRUE(absl::IsUnavailable(reply.status())) << reply.status();
    came.Notify();
  });
  EXPECT_TRUE(remote_->completes.empty());
  server_.reset();
  ASSERT_TRUE(came.WaitForNotificationWithTimeout(absl::Seconds(20)));
  EXPECT_FALSE(shard_->KeepsOrder());
  shard_->Complete({}, Soon(), [](const absl::StatusOr<CompleteReply>&) {});
  EXPECT_EQ(remote_->completes.size(), 1u);
}

TEST_F(DirectShardClientTest, APullWhoseAnswerFitsInNoFrameGoesTheOtherWay) {
  BeginPush();
  remote_->AnswerPush(PushReply());
  ASSERT_NO_FATAL_FAILURE(Connect());
  PullRequest request;
  for (size_t i = 0; i <= kMostSlices; ++i) request.add_slices(static_cast<uint32_t>(i));
  shard_->PullTensors(request, Soon(), [](const absl::StatusOr<TensorPull>&) {});
  EXPECT_EQ(remote_->pulls, 1);
}

TEST_F(DirectShardClientTest, WhatIsNoAnswerOfAShardIsAnError) {
  BeginPush();
  remote_->AnswerPush(PushReply());
  ASSERT_NO_FATAL_FAILURE(Connect());
  absl::Notification came;
  shard_->PullTensors({}, Soon(), [&](const absl::StatusOr<TensorPull>& pulled) {
    EXPECT_TRUE(absl::IsInternal(pulled.status())) << pulled.status();
    came.Notify();
  });
  EXPECT_TRUE(came.WaitForNotificationWithTimeout(absl::Seconds(20)));
}

}  // namespace
}  // namespace parley
