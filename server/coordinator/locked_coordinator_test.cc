#include "server/coordinator/locked_coordinator.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "absl/synchronization/notification.h"
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

// With threads and a disk: the append does not return.
TEST_F(LockedCoordinatorTest, WhatCannotBeRecordedForStallTimeoutLosesTheRule) {
  const CallHeader header = Join(1);
  const absl::Duration stall = CoordinatorFixture::DefaultOptions(1, 2).stall_timeout;
  coordinator_.RecordWith([] {});
  HeartbeatRequest heartbeat;
  *heartbeat.mutable_header() = header;
  absl::Status heard;
  const auto hear = [&] {
    coordinator_.Heartbeat(
        heartbeat, absl::InfiniteFuture(),
        [&](const absl::StatusOr<HeartbeatReply>& reply) { heard = reply.status(); });
    return heard;
  };
  // Time goes on in ticks, and the member is heard of.
  const auto pass = [&](absl::Duration time) {
    for (const absl::Time end = now_ + time; now_ < end;) {
      now_ += absl::Seconds(1);
      (void)hear();
      coordinator_.Tick();
    }
  };
  pass(stall / 2);
  EXPECT_EQ(hear(), absl::OkStatus()) << "all is recorded";

  absl::Status joined;
  coordinator_.Join(Worker(2), absl::InfiniteFuture(),
                    [&](const absl::StatusOr<JoinReply>& reply) { joined = reply.status(); });
  absl::Notification appends;
  absl::Notification disk_comes_back;
  std::thread writer([&] {
    (void)coordinator_.Record([&](const CoordinatorState&) {
      appends.Notify();
      disk_comes_back.WaitForNotification();
      return absl::OkStatus();
    });
  });
  appends.WaitForNotification();
  pass(stall - absl::Seconds(1));
  EXPECT_EQ(hear(), absl::OkStatus());
  EXPECT_TRUE(absl::IsUnavailable(joined)) << "held for half of liveness";
  pass(absl::Seconds(2));
  EXPECT_TRUE(absl::IsUnavailable(hear())) << heard;
  EXPECT_NE(heard.message().find("cannot record"), absl::string_view::npos) << heard;
  EXPECT_NE(heard.message().find("since 1970-01-01T00:00:30"), absl::string_view::npos) << heard;
  EXPECT_TRUE(absl::IsUnavailable(coordinator_.lost()));
  disk_comes_back.Notify();
  writer.join();
  EXPECT_TRUE(absl::IsUnavailable(hear())) << "it has given the job up";
}

TEST_F(LockedCoordinatorTest, ADiskThatRefusesIsOneThatAnswers) {
  const absl::Duration stall = CoordinatorFixture::DefaultOptions(1, 2).stall_timeout;
  coordinator_.RecordWith([] {});
  coordinator_.Join(Worker(1), absl::InfiniteFuture(), [](const absl::StatusOr<JoinReply>&) {});
  for (absl::Duration time; time < 3 * stall; time += absl::Seconds(1)) {
    now_ += absl::Seconds(1);
    coordinator_.Tick();
    EXPECT_FALSE(coordinator_
                     .Record([](const CoordinatorState&) {
                       return absl::UnavailableError("no space left on device");
                     })
                     .ok());
    ASSERT_EQ(coordinator_.lost(), absl::OkStatus());
  }
}

TEST_F(LockedCoordinatorTest, ARecordThatIsMadeNowAndThenIsEnough) {
  const absl::Duration stall = CoordinatorFixture::DefaultOptions(1, 2).stall_timeout;
  coordinator_.RecordWith([] {});
  uint64_t incarnation = 0;
  const auto change = [&] {
    JoinRequest request = Worker(++incarnation);
    request.set_address("127.0.0.1:5000");  // it takes the place of the one before
    coordinator_.Join(request, absl::InfiniteFuture(), [](const absl::StatusOr<JoinReply>&) {});
  };
  change();
  for (absl::Duration time; time < 3 * stall; time += absl::Seconds(1)) {
    now_ += absl::Seconds(1);
    coordinator_.Tick();
    // Something new has come in the time of each.
    const auto append = [&](const CoordinatorState&) {
      change();
      return absl::OkStatus();
    };
    if (absl::ToInt64Seconds(time) % 20 == 0) {
      EXPECT_EQ(coordinator_.Record(append), absl::OkStatus());
    }
    ASSERT_EQ(coordinator_.lost(), absl::OkStatus());
  }
}

TEST_F(LockedCoordinatorTest, OneThatWasStoppedItselfHasTheTimeToRecord) {
  const absl::Duration stall = CoordinatorFixture::DefaultOptions(1, 2).stall_timeout;
  coordinator_.RecordWith([] {});
  coordinator_.Tick();
  coordinator_.Join(Worker(1), absl::InfiniteFuture(), [](const absl::StatusOr<JoinReply>&) {});
  now_ += 2 * stall;
  coordinator_.Tick();
  EXPECT_EQ(coordinator_.lost(), absl::OkStatus());
}

}  // namespace
}  // namespace parley
