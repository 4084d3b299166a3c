#include "client/member_state.h"

#include <gtest/gtest.h>

#include <string>

namespace parley {
namespace {

constexpr absl::Duration kLiveness = absl::Seconds(10);
const absl::Time kStart = absl::FromUnixSeconds(1'800'000'000);

WatchReply WithView(uint64_t revision) {
  WatchReply reply;
  reply.set_revision(revision);
  reply.set_phase(TRAINING);
  reply.mutable_view()->set_step_leader(1);
  for (uint32_t shard = 0; shard < 2; ++shard) {
    Member* member = reply.mutable_view()->add_members();
    member->set_role(SHARD);
    member->set_ordinal(shard);
    member->set_address(shard == 0 ? "h:10" : "h:11");
  }
  return reply;
}

SharedJobState Told(const WatchReply& state) { return std::make_shared<const WatchReply>(state); }

MemberState MakeState(Role role, uint32_t ordinal) {
  MemberState::Options options;
  options.liveness = kLiveness;
  options.role = role;
  options.ordinal = ordinal;
  options.self = role == SHARD ? "shard 1 at h:11 (pid 5)" : "worker 0 at h:20 (pid 6)";
  options.coordinator = "h:1";
  return MemberState(options, kStart);
}

// Lets time pass as the driver does, with a coordinator that is down.
void PassSilently(MemberState& state, absl::Time from, absl::Time to) {
  for (absl::Time now = from; now <= to; now += kLiveness / 40) {
    state.Tick(now);
    if (state.wants_heartbeat(now)) {
      state.OnHeartbeat(absl::UnavailableError("down"), now, now);
    }
    if (state.wants_watch(now)) state.OnWatch(absl::UnavailableError("down"), now);
  }
}

TEST(MemberState, HeartbeatsComeFourTimesInALiveness) {
  MemberState state = MakeState(WORKER, 0);
  int heartbeats = 0;
  for (absl::Time now = kStart; now < kStart + 10 * kLiveness; now += kLiveness / 40) {
    state.Tick(now);
    if (!state.wants_heartbeat(now)) continue;
    ++heartbeats;
    state.OnHeartbeat(absl::OkStatus(), now, now);
  }
  EXPECT_EQ(heartbeats, 39);
  EXPECT_FALSE(state.failure().has_value());
}

TEST(MemberState, TheStepLeaderComposesTheCauseWhenTheCoordinatorIsLost) {
  MemberState state = MakeState(SHARD, 1);
  EXPECT_TRUE(state.OnWatch(Told(WithView(1)), kStart));
  state.Progress(17, 0);
  PassSilently(state, kStart, kStart + kLiveness - absl::Milliseconds(1));
  EXPECT_FALSE(state.failure().has_value());
  PassSilently(state, kStart + kLiveness, kStart + kLiveness);
  ASSERT_TRUE(state.failure().has_value());
  EXPECT_EQ(state.failure()->text(),
            "coordinator at h:1 has not answered since 2027-01-15T08:00:00.000Z (10.0 s); "
            "last decided step 17");
  EXPECT_EQ(state.failure()->last_decided_step(), 17);
  EXPECT_TRUE(state.coordinator_lost());
}

TEST(MemberState, OthersTakeTheStepLeadersText) {
  MemberState state = MakeState(WORKER, 0);
  EXPECT_TRUE(state.OnWatch(Told(WithView(1)), kStart));
  PassSilently(state, kStart, kStart + kLiveness / 2 - absl::Milliseconds(1));
  EXPECT_FALSE(state.wants_leader(kStart + kLiveness / 2 - absl::Milliseconds(1)));
  EXPECT_TRUE(state.wants_leader(kStart + kLiveness / 2));  // asked early: it answers when it knows
  EXPECT_EQ(state.leader_address(), "h:11");
  PassSilently(state, kStart + kLiveness / 2, kStart + kLiveness + absl::Seconds(1));
  EXPECT_FALSE(state.failure().has_value());
  FirstCause cause;
  cause.set_text("the leader's words");
  state.OnLeaderAnswer(cause, kStart + kLiveness + absl::Seconds(1));
  ASSERT_TRUE(state.failure().has_value());
  EXPECT_EQ(state.failure()->text(), "the leader's words");
}

TEST(MemberState, WithoutAnAnswerOfTheStepLeaderOwnWordsComeBeforeTwiceLiveness) {
  MemberState state = MakeState(WORKER, 0);
  EXPECT_TRUE(state.OnWatch(Told(WithView(1)), kStart));
  absl::Time now = kStart;
  int asked = 0;
  for (; !state.failure().has_value(); now += kLiveness / 40) {
    ASSERT_LT(now, kStart + 2 * kLiveness);
    PassSilently(state, now, now);
    if (!state.wants_leader(now)) continue;
    ++asked;
    EXPECT_LT(now, state.ask_deadline());
    state.OnLeaderAnswer(absl::UnavailableError("down too"), now);
  }
  EXPECT_GT(asked, 10);
  EXPECT_GT(now, kStart + kLiveness * 1.5);
  EXPECT_EQ(state.failure()->text().find("coordinator at h:1 has not answered since"), 0);
}

TEST(MemberState, BeforeThereIsAViewOwnWordsCountAtOnce) {
  MemberState state = MakeState(WORKER, 0);
  PassSilently(state, kStart, kStart + kLiveness);
  ASSERT_TRUE(state.failure().has_value());
  EXPECT_NE(state.failure()->text().find("(10.0 s); last decided step 0"), std::string::npos);
}

TEST(MemberState, AHeartbeatThatGetsThroughEndsTheDoubt) {
  MemberState state = MakeState(WORKER, 0);
  EXPECT_TRUE(state.OnWatch(Told(WithView(1)), kStart));
  const absl::Time late = kStart + 0.9 * kLiveness;
  PassSilently(state, kStart, late);
  EXPECT_TRUE(state.wants_leader(late));
  EXPECT_GT(state.missed_heartbeats(), 2);
  state.OnHeartbeat(absl::OkStatus(), late, late);
  EXPECT_FALSE(state.wants_leader(late));
  EXPECT_EQ(state.missed_heartbeats(), 0);
  PassSilently(state, late, late + 0.9 * kLiveness);
  EXPECT_FALSE(state.failure().has_value());
}

TEST(MemberState, AProcessThatWasStoppedAsksBeforeItJudges) {
  MemberState state = MakeState(SHARD, 1);
  EXPECT_TRUE(state.OnWatch(Told(WithView(1)), kStart));
  state.Tick(kStart);
  const absl::Time woken = kStart + 5 * kLiveness;
  state.Tick(woken);
  EXPECT_FALSE(state.failure().has_value());
  ASSERT_TRUE(state.wants_heartbeat(woken));
  state.OnHeartbeat(absl::AbortedError("lease over"), woken, woken);
  EXPECT_TRUE(state.wants_status(woken));
  GetStatusReply status;
  status.mutable_cause()->set_text("shard 1 has not been heard of");
  state.OnStatus(status, woken);
  ASSERT_TRUE(state.failure().has_value());
  EXPECT_EQ(state.failure()->text(), "shard 1 has not been heard of");
}

TEST(MemberState, AProcessThatWasStoppedFindsTheCoordinatorLostAfterItsGrace) {
  MemberState state = MakeState(SHARD, 1);
  EXPECT_TRUE(state.OnWatch(Told(WithView(1)), kStart));
  state.Tick(kStart);
  const absl::Time woken = kStart + 5 * kLiveness;
  PassSilently(state, woken, woken + kLiveness / 4);
  ASSERT_TRUE(state.failure().has_value());
  EXPECT_TRUE(state.coordinator_lost());
}

TEST(MemberState, AFencedMemberEndsWithAClearCause) {
  MemberState state = MakeState(WORKER, 0);
  EXPECT_FALSE(state.OnWatch(absl::AbortedError("an older incarnation"), kStart));
  EXPECT_TRUE(state.wants_status(kStart));
  EXPECT_FALSE(state.wants_watch(kStart + kLiveness));
  state.Tick(kStart + kLiveness / 4 - absl::Milliseconds(1));
  EXPECT_FALSE(state.failure().has_value());
  state.Tick(kStart + kLiveness / 4);
  ASSERT_TRUE(state.failure().has_value());
  EXPECT_EQ(state.failure()->text(),
            "worker 0 at h:20 (pid 6): the coordinator at h:1 has fenced it off: an older "
            "incarnation; last decided step 0");
}

MemberState MakeAutonomous(Role role, uint32_t ordinal) {
  MemberState::Options options;
  options.liveness = kLiveness;
  options.autonomy = 6 * kLiveness;
  options.role = role;
  options.ordinal = ordinal;
  options.coordinator = "h:1";
  options.generation = 2;
  return MemberState(options, kStart);
}

TEST(MemberState, WithoutTheCoordinatorItGoesOnForTheTimeOfAutonomy) {
  MemberState state = MakeAutonomous(SHARD, 1);
  WatchReply view = WithView(1);
  EXPECT_FALSE(state.OnWatch(Told(view), kStart)) << "of a former coordinator";
  view.set_generation(2);
  EXPECT_TRUE(state.OnWatch(Told(view), kStart));
  PassSilently(state, kStart, kStart + 6.9 * kLiveness);
  EXPECT_TRUE(state.coordinator_lost());
  EXPECT_TRUE(state.may_have_moved());
  EXPECT_FALSE(state.failure().has_value());
  PassSilently(state, kStart + 6.9 * kLiveness, kStart + 7 * kLiveness);
  ASSERT_TRUE(state.failure().has_value());
  EXPECT_EQ(state.failure()->text(),
            "coordinator at h:1 has not answered since 2027-01-15T08:00:00.000Z (70.0 s), and "
            "training without it may last 1m; last decided step 0");
}

TEST(MemberState, OneThatReturnsWithTheEndOfTheJobIsLostNoLonger) {
  MemberState state = MakeAutonomous(WORKER, 0);
  PassSilently(state, kStart, kStart + 2 * kLiveness);
  EXPECT_TRUE(state.coordinator_lost());
  WatchReply reply = WithView(1);
  reply.set_generation(2);
  reply.set_phase(FINISHED);
  EXPECT_TRUE(state.OnWatch(Told(reply), kStart + 2 * kLiveness));
  EXPECT_FALSE(state.coordinator_lost()) << "it waits to hear that this member leaves";
}

TEST(MemberState, OneThatReturnsInTimeEndsTheAutonomy) {
  MemberState state = MakeAutonomous(WORKER, 0);
  PassSilently(state, kStart, kStart + 6 * kLiveness);
  const absl::Time back = kStart + 6 * kLiveness;
  state.Moved("h:2");
  state.OnHeartbeat(absl::OkStatus(), back, back, 3);
  EXPECT_FALSE(state.coordinator_lost());
  PassSilently(state, back, back + 6.9 * kLiveness);
  EXPECT_FALSE(state.failure().has_value());
}

TEST(MemberState, AFormerCoordinatorCountsAsNone) {
  MemberState state = MakeAutonomous(WORKER, 0);
  state.OnHeartbeat(absl::OkStatus(), kStart, kStart, 1);
  EXPECT_EQ(state.missed_heartbeats(), 1) << "below that of its own join";
  // One that does not know this member must not end it.
  state.OnHeartbeat(absl::AbortedError("nobody has joined as member 7"), kStart, kStart);
  EXPECT_TRUE(state.wants_status(kStart));
  GetStatusReply status;
  status.set_generation(1);
  status.set_phase(FAILED);
  status.mutable_cause()->set_text("an old cause");
  state.OnStatus(status, kStart);
  EXPECT_FALSE(state.failure().has_value());
  state.OnHeartbeat(absl::OkStatus(), kStart, kStart + kLiveness / 8, 2);
  state.Tick(kStart + kLiveness);
  EXPECT_FALSE(state.wants_status(kStart + kLiveness));
  EXPECT_FALSE(state.failure().has_value());
}

TEST(MemberState, AMemberThatIsFencedWhenTheJobIsOverIsToldThatItIsFinished) {
  MemberState state = MakeState(WORKER, 0);
  EXPECT_FALSE(state.OnWatch(absl::AbortedError("silent for 10s"), kStart));
  GetStatusReply over;
  over.set_phase(FINISHED);
  state.OnStatus(over, kStart);
  ASSERT_TRUE(state.failure().has_value());
  EXPECT_EQ(state.failure()->text(),
            "worker 0 at h:20 (pid 6): the job is FINISHED without it: the coordinator at h:1 has "
            "fenced it off: silent for 10s; last decided step 0");
}

TEST(MemberState, TheCoordinatorsCauseCounts) {
  MemberState state = MakeState(WORKER, 0);
  WatchReply failed = WithView(4);
  failed.set_phase(FAILED);
  failed.mutable_cause()->set_text("worker 1 is gone");
  failed.mutable_cause()->set_preempted(true);
  EXPECT_FALSE(state.OnWatch(Told(failed), kStart));
  ASSERT_TRUE(state.failure().has_value());
  EXPECT_EQ(state.failure()->text(), "worker 1 is gone");
  EXPECT_TRUE(state.failure()->preempted());
  state.FailWith("something later", false);
  EXPECT_EQ(state.failure()->text(), "worker 1 is gone");
  EXPECT_FALSE(state.wants_heartbeat(kStart + kLiveness));
}

TEST(MemberState, AnOldRevisionIsNoNews) {
  MemberState state = MakeState(WORKER, 0);
  EXPECT_TRUE(state.OnWatch(Told(WithView(3)), kStart));
  EXPECT_FALSE(state.OnWatch(Told(WithView(3)), kStart));
  EXPECT_FALSE(state.OnWatch(Told(WithView(2)), kStart));
  EXPECT_FALSE(state.wants_watch(kStart));  // never a busy loop
  EXPECT_TRUE(state.wants_watch(kStart + absl::Milliseconds(10)));
}

TEST(MemberState, AfterTheEndTheCoordinatorMayGo) {
  MemberState state = MakeState(WORKER, 0);
  WatchReply finished = WithView(5);
  finished.set_phase(FINISHED);
  EXPECT_TRUE(state.OnWatch(Told(finished), kStart));
  PassSilently(state, kStart, kStart + 3 * kLiveness);
  state.OnHeartbeat(absl::AbortedError("who?"), kStart, kStart);
  EXPECT_FALSE(state.failure().has_value());
  EXPECT_FALSE(state.wants_status(kStart));
  EXPECT_TRUE(state.wants_heartbeat(kStart + 4 * kLiveness));
  state.Leave();
  EXPECT_FALSE(state.wants_heartbeat(kStart + 4 * kLiveness));
}

TEST(MemberState, WhereTheJobGoesBackTheLastDecidedStepDoesToo) {
  MemberState state = MakeState(WORKER, 0);
  WatchReply reply = WithView(1);
  reply.mutable_view()->set_job_epoch(1);
  EXPECT_TRUE(state.OnWatch(Told(reply), kStart));
  state.Progress(17, 1);
  EXPECT_EQ(state.last_decided_step(), 17);
  // Another view is no step back.
  reply.set_revision(2);
  reply.mutable_view()->set_view_epoch(2);
  EXPECT_TRUE(state.OnWatch(Told(reply), kStart));
  EXPECT_EQ(state.last_decided_step(), 17);
  reply.set_revision(3);
  reply.mutable_view()->set_job_epoch(2);
  reply.mutable_view()->set_start_version(10);
  EXPECT_TRUE(state.OnWatch(Told(reply), kStart));
  EXPECT_EQ(state.last_decided_step(), 10);
  state.Progress(18, 1);
  EXPECT_EQ(state.last_decided_step(), 10) << "what the former epoch decided does not count";
  state.Progress(11, 2);
  EXPECT_EQ(state.last_decided_step(), 11);
  state.FailWith("no data", false);
  EXPECT_EQ(state.failure()->last_decided_step(), 11);
}

TEST(MemberState, APreemptedOneIsAMemberUntilTheCoordinatorEndsTheJob) {
  MemberState state = MakeState(SHARD, 1);
  EXPECT_TRUE(state.Preempt("preempted by SIGTERM", kStart + 2 * kLiveness));
  EXPECT_FALSE(state.Preempt("preempted by SIGUSR1", kStart + 3 * kLiveness)) << "no more time";
  for (absl::Time now = kStart; now < kStart + 1.9 * kLiveness; now += kLiveness / 4) {
    state.OnHeartbeat(absl::OkStatus(), now, now);
    state.Tick(now);
  }
  EXPECT_FALSE(state.failure().has_value());
  WatchReply failed = WithView(4);
  failed.set_phase(FAILED);
  failed.mutable_cause()->set_text("preempted, and saved");
  EXPECT_FALSE(state.OnWatch(Told(failed), kStart + 1.9 * kLiveness));
  EXPECT_EQ(state.failure()->text(), "preempted, and saved");
}

TEST(MemberState, APreemptedOneDoesNotWaitForTheCoordinatorForEver) {
  MemberState state = MakeAutonomous(WORKER, 0);
  EXPECT_TRUE(state.Preempt("preempted by SIGTERM", kStart + 2 * kLiveness));
  PassSilently(state, kStart, kStart + 1.9 * kLiveness);
  EXPECT_FALSE(state.failure().has_value());
  PassSilently(state, kStart + 1.9 * kLiveness, kStart + 2 * kLiveness);
  ASSERT_TRUE(state.failure().has_value());
  EXPECT_TRUE(state.failure()->preempted());
  EXPECT_NE(state.failure()->text().find("preempted by SIGTERM, and the coordinator at h:1 has not "
                                         "ended the job in time; last decided step 0"),
            std::string::npos)
      << state.failure()->text();
}

TEST(MemberState, APreemptedOneMayGetLessTimeLater) {
  MemberState state = MakeAutonomous(WORKER, 0);
  EXPECT_TRUE(state.Preempt("preempted by SIGUSR1", kStart + 9 * kLiveness));
  EXPECT_TRUE(state.Preempt("preempted by SIGTERM", kStart + 2 * kLiveness)) << "to be told too";
  PassSilently(state, kStart, kStart + 1.9 * kLiveness);
  EXPECT_FALSE(state.failure().has_value());
  PassSilently(state, kStart + 1.9 * kLiveness, kStart + 2 * kLiveness);
  ASSERT_TRUE(state.failure().has_value());
  EXPECT_NE(state.failure()->text().find("preempted by SIGUSR1, and"), std::string::npos)
      << state.failure()->text();
}

TEST(MemberState, APreemptedOneThatIsFencedGoes) {
  for (const bool before : {true, false}) {
    MemberState::Options options;
    options.liveness = kLiveness;
    options.may_rejoin = true;
    options.self = "worker 0 at h:20 (pid 6)";
    MemberState state(options, kStart);
    if (before) {
      EXPECT_TRUE(state.Preempt("preempted by SIGTERM", kStart + kLiveness));
    }
    state.OnHeartbeat(absl::AbortedError("silent for 10s"), kStart, kStart);
    if (!before) {
      EXPECT_TRUE(state.Preempt("preempted by SIGTERM", kStart + kLiveness));
    }
    EXPECT_FALSE(state.expelled());
    ASSERT_TRUE(state.failure().has_value());
    EXPECT_EQ(state.failure()->text(),
              "worker 0 at h:20 (pid 6): preempted by SIGTERM; last decided step 0");
    EXPECT_TRUE(state.failure()->preempted());
  }
}

TEST(MemberState, OneThatIsToldToEndWhenTheJobHasGoneOnWithoutItGoes) {
  MemberState::Options options;
  options.liveness = kLiveness;
  options.may_rejoin = true;
  options.self = "worker 0 at h:20 (pid 6)";
  MemberState state(options, kStart);
  state.OnHeartbeat(absl::AbortedError("silent for 10s"), kStart, kStart);
  GetStatusReply training;
  training.set_phase(TRAINING);
  state.OnStatus(training, kStart);
  ASSERT_TRUE(state.expelled());
  EXPECT_FALSE(state.Preempt("preempted by SIGTERM", kStart + kLiveness)) << "nobody to tell";
  EXPECT_FALSE(state.Preempt("preempted by SIGUSR1", kStart + kLiveness));
  ASSERT_TRUE(state.failure().has_value());
  EXPECT_EQ(state.failure()->text(),
            "worker 0 at h:20 (pid 6): preempted by SIGTERM; last decided step 0");
  EXPECT_TRUE(state.failure()->preempted());
}

TEST(MemberState, AReasonOfItsOwnNamesTheMemberAndTheStep) {
  MemberState state = MakeState(WORKER, 0);
  state.Progress(3, 0);
  state.Progress(2, 0);
  state.FailWith("no data", true);
  ASSERT_TRUE(state.failure().has_value());
  EXPECT_EQ(state.failure()->text(), "worker 0 at h:20 (pid 6): no data; last decided step 3");
  EXPECT_TRUE(state.failure()->preempted());
}

}  // namespace
}  // namespace parley
