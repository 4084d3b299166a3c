#include "server/coordinator/locked_coordinator.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "server/coordinator/coordinator_fixture.h"

namespace parley {
namespace {

class LockedCoordinatorTest : public testing::Test {
 protected:
  void SetUp() override { coordinator_.Open(3, "127.0.0.1:4000"); }

  JoinRequest Worker(uint64_t incarnation) {
    JoinRequest request;
    request.mutable_header()->set_job("digits");
    request.mutable_header()->set_incarnation(incarnation);
    request.set_role(WORKER);
    request.set_job_fingerprint("00000000000000aa");
    return request;
  }

  CallHeader Join(uint64_t incarnation) {
    CallHeader header = Worker(incarnation).header();
    coordinator_.Join(Worker(incarnation), absl::InfiniteFuture(),
                      [&](absl::StatusOr<JoinReply> reply) {
                        EXPECT_TRUE(reply.ok()) << reply.status();
                        if (reply.ok()) header.set_member(reply->member());
                      });
    return header;
  }

  absl::Time now_ = absl::UnixEpoch();
  LockedCoordinator coordinator_{CoordinatorFixture::DefaultOptions(1, 2), [this] { return now_; }};
};

TEST_F(LockedCoordinatorTest, AnAnswerMayCallBackIntoTheCoordinator) {
  const CallHeader header = Join(1);
  std::optional<absl::Status> inner;
  FailRequest fail;
  *fail.mutable_header() = header;
  fail.set_reason("x");
  coordinator_.Fail(fail, absl::InfiniteFuture(), [&](absl::StatusOr<FailReply>) {
    coordinator_.GetStatus({}, absl::InfiniteFuture(), [&](absl::StatusOr<GetStatusReply> reply) {
      inner = reply.status();
      EXPECT_EQ(reply->phase(), FAILED);
      EXPECT_EQ(reply->generation(), 3u);
    });
  });
  ASSERT_TRUE(inner.has_value());
}

TEST_F(LockedCoordinatorTest, TimePassesInTicksAlone) {
  const CallHeader header = Join(1);
  WatchRequest request;
  *request.mutable_header() = header;
  request.set_seen_revision(1);
  std::optional<absl::StatusOr<SharedJobState>> watched;
  coordinator_.Watch(request, now_ + absl::Seconds(3),
                     [&](const absl::StatusOr<SharedJobState>& reply) { watched = reply; });
  now_ += absl::Seconds(4);
  EXPECT_FALSE(watched.has_value());
  coordinator_.Tick();
  ASSERT_TRUE(watched.has_value());
  EXPECT_TRUE(watched->ok());
}

TEST_F(LockedCoordinatorTest, AwaitChangeReturnsWhenAMemberJoins) {
  coordinator_.AwaitChange(absl::ZeroDuration());
  std::thread joining([this] { Join(1); });
  coordinator_.AwaitChange(absl::Seconds(30));
  joining.join();
  EXPECT_EQ(coordinator_.Read([](const CoordinatorCore& core) { return core.Members().size(); }),
            1u);
}

TEST_F(LockedCoordinatorTest, CloseAnswersWhatIsParked) {
  WatchRequest request;
  *request.mutable_header() = Join(1);
  request.set_seen_revision(1);
  bool answered = false;
  coordinator_.Watch(request, absl::InfiniteFuture(),
                     [&](absl::StatusOr<SharedJobState>) { answered = true; });
  EXPECT_FALSE(answered);
  coordinator_.Close();
  EXPECT_TRUE(answered);
}

TEST_F(LockedCoordinatorTest, WhatIsNotRecordedIsLostWithTheRule) {
  coordinator_.RecordWith([] {});
  coordinator_.Join(Worker(1), absl::InfiniteFuture(), [](const absl::StatusOr<JoinReply>&) {});
  EXPECT_TRUE(absl::IsDeadlineExceeded(coordinator_.AwaitRecorded(absl::Milliseconds(1))));
  std::thread losing([this] { coordinator_.Lose(absl::AbortedError("another one rules")); });
  EXPECT_TRUE(absl::IsUnavailable(coordinator_.AwaitRecorded(absl::Seconds(30))));
  losing.join();
}

}  // namespace
}  // namespace parley
