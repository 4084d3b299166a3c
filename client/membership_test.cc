#include "client/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "client/testing/scripted_coordinator.h"
#include "common/clock/steady_now.h"
#include "common/file_system.h"
#include "common/host_name.h"

namespace parley {
namespace {

WatchReply Training() {
  WatchReply state;
  state.set_phase(TRAINING);
  state.mutable_view()->set_job_epoch(1);
  state.mutable_view()->set_view_epoch(4);
  Member* leader = state.mutable_view()->add_members();
  leader->set_role(SHARD);
  leader->set_address("h:10");
  return state;
}

class MembershipTest : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Membership>> Join(absl::Duration liveness = absl::Seconds(10),
                                                   const std::string& coordinator = "h:1",
                                                   const std::string& address = "h:20") {
    Membership::Options options;
    options.job = "x";
    options.role = WORKER;
    options.coordinator = coordinator;
    options.address = address;
    options.liveness = liveness;
    options.autonomy = autonomy_;
    options.join_timeout = join_timeout_;
    options.wait_for_place = true;
    options.resolve = resolve_;
    options.coordinator_news = [this](const std::string& news) {
      {
        absl::MutexLock lock(&mu_);
        news_.push_back(news);
      }
      if (on_news_) on_news_();
    };
    Membership::Listener listener;
    listener.on_state = [this](const SharedJobState& state) {
      absl::MutexLock lock(&mu_);
      EXPECT_FALSE(failed_);
      states_.push_back(state->phase());
    };
    listener.on_failed = [this](const FirstCause& cause) {
      absl::MutexLock lock(&mu_);
      EXPECT_FALSE(failed_);
      failed_ = true;
      cause_ = cause.text();
    };
    return Membership::Join(options, service_, listener);
  }

  std::string AwaitFailure() {
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(&failed_));
    return cause_;
  }
  void AwaitStates(size_t count) {
    absl::MutexLock lock(&mu_);
    auto enough = [this, count]()
                      ABSL_NO_THREAD_SAFETY_ANALYSIS { return states_.size() >= count; };
    mu_.Await(absl::Condition(&enough));
  }

  std::vector<std::string> AwaitNews(size_t count) {
    absl::MutexLock lock(&mu_);
    auto enough = [this, count]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return news_.size() >= count; };
    mu_.Await(absl::Condition(&enough));
    return news_;
  }

  absl::Duration autonomy_;
  absl::Duration join_timeout_ = absl::Milliseconds(500);
  std::function<void()> on_news_;
  std::function<absl::StatusOr<std::string>()> resolve_;
  absl::Mutex mu_;
  std::vector<std::string> news_ ABSL_GUARDED_BY(mu_);
  std::vector<Phase> states_ ABSL_GUARDED_BY(mu_);
  bool failed_ ABSL_GUARDED_BY(mu_) = false;
  std::string cause_ ABSL_GUARDED_BY(mu_);
  ScriptedCoordinator service_;
};

TEST_F(MembershipTest, JoinsAndFollowsTheState) {
  auto membership = Join();
  ASSERT_TRUE(membership.ok()) << membership.status();
  EXPECT_EQ((*membership)->member(), 7);
  EXPECT_EQ((*membership)->ordinal(), 1);
  EXPECT_EQ(service_.joined().address(), "h:20");
  EXPECT_NE(service_.joined().header().incarnation(), 0);
  EXPECT_EQ((*membership)->header().view_epoch(), 0);
  service_.Publish(Training());
  AwaitStates(1);
  EXPECT_EQ((*membership)->header().job(), "x");
  EXPECT_EQ((*membership)->header().member(), 7);
  EXPECT_EQ((*membership)->header().view_epoch(), 4);
  EXPECT_EQ((*membership)->header().incarnation(), service_.joined().header().incarnation());
}

TEST_F(MembershipTest, ItSaysOnWhichMachineItRuns) {
  ASSERT_TRUE(Join().ok());
  EXPECT_EQ(service_.joined().host(), HostName());
  auto membership = Join(absl::Milliseconds(100), "h:1", /*address=*/"");
  ASSERT_TRUE(membership.ok()) << membership.status();
  EXPECT_EQ(service_.joined().address(), "") << "others could have the same";
  EXPECT_EQ(service_.joined().host(), HostName());
  service_.set_heartbeat(absl::AbortedError("member 7 has a newer incarnation"));
  const std::string self = absl::StrCat("worker 1 on ", HostName(), " (pid ", getpid(), "): ");
  const std::string cause = AwaitFailure();
  EXPECT_EQ(cause.find(self), 0) << cause;
}

TEST_F(MembershipTest, HeartbeatsCarryProgress) {
  auto membership = Join(absl::Milliseconds(40));
  ASSERT_TRUE(membership.ok()) << membership.status();
  (*membership)->Progress(3, 0);
  (*membership)->Progress(4, 0);
  service_.AwaitHeartbeats(3);
  EXPECT_EQ(service_.last_heartbeat().step(), 4);
  EXPECT_EQ(service_.last_heartbeat().progress(), 2);
}

TEST_F(MembershipTest, WhoseWatchWasLostHearsOfTheNewsAfterItsNextHeartbeat) {
  auto membership = Join(absl::Milliseconds(40));
  ASSERT_TRUE(membership.ok()) << membership.status();
  service_.PublishUnheard(Training());
  AwaitStates(1);
  EXPECT_EQ((*membership)->header().view_epoch(), 4);
}

TEST_F(MembershipTest, ACoordinatorThatIsNotThereIsNamedAfterTheJoinTimeout) {
  service_.set_down(true);
  auto membership = Join();
  EXPECT_EQ(membership.status().code(), absl::StatusCode::kDeadlineExceeded);
  const std::string message(membership.status().message());
  EXPECT_NE(message.find("h:1 "), std::string::npos) << message;
  EXPECT_NE(message.find("nobody there"), std::string::npos) << message;
}

TEST_F(MembershipTest, WhoIsNotTakenInSaysWhyAndWhenThatIsAnotherReason) {
  join_timeout_ = absl::Minutes(1);
  service_.set_join(absl::ResourceExhaustedError("all places are taken"));
  int tries = 0;
  on_news_ = [&] {
    service_.set_join(++tries == 1 ? absl::UnavailableError("it has gone") : absl::OkStatus());
  };
  auto membership = Join();
  ASSERT_TRUE(membership.ok()) << membership.status();
  const std::vector<std::string> news = AwaitNews(2);
  ASSERT_EQ(news.size(), 2u);
  EXPECT_THAT(news[0], testing::StartsWith("has not been taken in by h:1 since "));
  EXPECT_THAT(news[0], testing::EndsWith(": all places are taken"));
  EXPECT_THAT(news[1], testing::EndsWith(": it has gone"));
}

TEST_F(MembershipTest, TheSameReasonIsToldOnce) {
  service_.set_down(true);
  EXPECT_FALSE(Join().ok());  // it has tried for half a second
  EXPECT_EQ(AwaitNews(1).size(), 1u);
}

TEST_F(MembershipTest, ThatTheCoordinatorIsLostAndAnswersAgainIsTold) {
  autonomy_ = absl::Minutes(10);
  auto membership = Join(absl::Milliseconds(100));
  ASSERT_TRUE(membership.ok()) << membership.status();
  service_.set_down(true);
  const std::string lost = AwaitNews(1)[0];
  EXPECT_THAT(lost, testing::StartsWith("the coordinator at h:1 has not answered since "));
  EXPECT_THAT(lost, testing::HasSubstr("goes on without it for 10m at most"));
  service_.set_down(false);
  EXPECT_THAT(AwaitNews(2)[1], testing::StartsWith("the coordinator at h:1 answers again"));
}

TEST_F(MembershipTest, AnAddressFileThatComesLaterIsFound) {
  const std::string path = testing::TempDir() + "/coordinator-address";
  const auto files = PosixFileSystem();
  (void)files->Remove(path);
  EXPECT_EQ(Join(absl::Seconds(10), "file:" + path).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(WriteFileAtomically(*files, path, "h:99\n").ok());
  auto membership = Join(absl::Seconds(10), "file:" + path);
  ASSERT_TRUE(membership.ok()) << membership.status();
  EXPECT_EQ(service_.connected(), std::vector<std::string>{"h:99"});
}

// Of an address file on a mount whose server comes and goes.
struct HangingFile {
  std::atomic<bool> hangs = false;
  absl::Notification comes_back;

  static std::function<absl::StatusOr<std::string>()> Reader(std::shared_ptr<HangingFile> file) {
    return [file = std::move(file)]() -> absl::StatusOr<std::string> {
      if (!file->hangs) return "h:1";
      file->comes_back.WaitForNotification();
      return "h:2";
    };
  }
};

TEST_F(MembershipTest, HeartbeatsGoOnWhileTheAddressFileIsNotRead) {
  const auto file = std::make_shared<HangingFile>();
  resolve_ = HangingFile::Reader(file);
  autonomy_ = absl::Seconds(30);  // this thread may be late
  auto membership = Join(absl::Milliseconds(400));
  ASSERT_TRUE(membership.ok()) << membership.status();
  file->hangs = true;
  service_.set_heartbeat(absl::UnavailableError("this one is lost"));
  EXPECT_TRUE(service_.AwaitHeartbeats(service_.heartbeats() + 2));
  service_.set_heartbeat(absl::OkStatus());
  EXPECT_TRUE(service_.AwaitHeartbeats(service_.heartbeats() + 5));
  EXPECT_FALSE((*membership)->failure().has_value());
  EXPECT_EQ(service_.connected(), std::vector<std::string>{"h:1"});
  file->comes_back.Notify();
  const absl::Time until = SteadyNow() + absl::Seconds(10);
  while (service_.connected().size() < 2 && SteadyNow() < until) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_EQ(service_.connected(), (std::vector<std::string>{"h:1", "h:2"}));
}

TEST_F(MembershipTest, WhoGoesDoesNotWaitForTheAddressFile) {
  const auto file = std::make_shared<HangingFile>();
  resolve_ = HangingFile::Reader(file);
  auto membership = Join(absl::Milliseconds(400));
  ASSERT_TRUE(membership.ok()) << membership.status();
  file->hangs = true;
  service_.set_unheard_leaves(2);
  (*membership)->Depart();
  membership->reset();
  EXPECT_EQ(service_.departs(), 3);
  file->comes_back.Notify();
}

TEST_F(MembershipTest, WhoJoinsWaitsForTheAddressFileUntilTheJoinTimeout) {
  const auto file = std::make_shared<HangingFile>();
  resolve_ = HangingFile::Reader(file);
  file->hangs = true;
  const absl::Status joined = Join().status();
  EXPECT_EQ(joined.code(), absl::StatusCode::kDeadlineExceeded) << joined;
  EXPECT_THAT(std::string(joined.message()), testing::HasSubstr("what says its address"));
  file->comes_back.Notify();
}

TEST_F(MembershipTest, APreemptedOneTellsOfItOnceAndHearsOfTheEndLikeOthers) {
  auto membership = Join();
  ASSERT_TRUE(membership.ok()) << membership.status();
  (*membership)->Preempt("preempted by SIGTERM", absl::Seconds(25));
  (*membership)->Preempt("preempted by SIGUSR1", absl::Seconds(85));
  service_.AwaitFails(1);
  EXPECT_EQ(service_.failed_with(), "preempted by SIGTERM");
  EXPECT_FALSE((*membership)->failure().has_value());
  service_.Publish(Training());
  AwaitStates(1);
  WatchReply failed;
  failed.set_phase(FAILED);
  failed.mutable_cause()->set_text("preempted, and saved");
  service_.Publish(failed);
  EXPECT_EQ(AwaitFailure(), "preempted, and saved");
  EXPECT_EQ(service_.fails(), 1);
}

TEST_F(MembershipTest, APreemptedOneThatHasLessTimeThanItSaidTellsOfThatToo) {
  auto membership = Join();
  ASSERT_TRUE(membership.ok()) << membership.status();
  (*membership)->Preempt("preempted by SIGUSR1", absl::Seconds(85));
  service_.AwaitFails(1);
  EXPECT_EQ(service_.failed_within(), absl::Seconds(85));
  (*membership)->Preempt("preempted by SIGTERM", absl::Seconds(25));
  service_.AwaitFails(2);
  EXPECT_EQ(service_.failed_within(), absl::Seconds(25));
  EXPECT_FALSE((*membership)->failure().has_value());
}

TEST_F(MembershipTest, APreemptedOneThatDoesNotReachTheCoordinatorTriesUntilItDoes) {
  auto membership = Join();
  ASSERT_TRUE(membership.ok()) << membership.status();
  service_.set_down(true);
  (*membership)->Preempt("preempted by SIGTERM", absl::Seconds(25));
  EXPECT_EQ(service_.fails(), 0);
  service_.set_down(false);
  service_.AwaitFails(1);
  EXPECT_FALSE((*membership)->failure().has_value());
}

TEST_F(MembershipTest, APreemptedOneThatIsHeardLateTellsWhatIsLeftOfItsTime) {
  auto membership = Join();
  ASSERT_TRUE(membership.ok()) << membership.status();
  service_.set_down(true);
  (*membership)->Preempt("preempted by SIGUSR1", absl::Seconds(85));
  absl::SleepFor(absl::Seconds(1));
  service_.set_down(false);
  service_.AwaitFails(1);
  EXPECT_LE(service_.failed_within(), absl::Seconds(84) + absl::Milliseconds(100));
  EXPECT_GE(service_.failed_within(), absl::Seconds(60));
}

TEST_F(MembershipTest, APreemptedOneThatIsHeardWhenItsTimeIsOverHasNearlyNone) {
  auto membership = Join();
  ASSERT_TRUE(membership.ok()) << membership.status();
  service_.set_down(true);
  (*membership)->Preempt("preempted by SIGTERM", absl::Milliseconds(100));
  absl::SleepFor(absl::Milliseconds(200));
  service_.set_down(false);
  service_.AwaitFails(1);
  EXPECT_EQ(service_.failed_within(), absl::Microseconds(1)) << "0 is the default";
}

TEST_F(MembershipTest, AFailureOfItsOwnComesBackAsTheCauseThatCounts) {
  auto membership = Join();
  ASSERT_TRUE(membership.ok()) << membership.status();
  EXPECT_EQ((*membership)->Fail("no data", false).text(), "worker 1: no data");
  EXPECT_EQ(service_.failed_with(), "no data");
  EXPECT_EQ(AwaitFailure(), "worker 1: no data");
  EXPECT_EQ((*membership)->failure()->text(), "worker 1: no data");
  EXPECT_EQ((*membership)->Fail("another thing", false).text(), "worker 1: no data");
}

TEST_F(MembershipTest, WhenTheCoordinatorIsLostTheStepLeadersWordsCount) {
  auto membership = Join(absl::Milliseconds(100));
  ASSERT_TRUE(membership.ok()) << membership.status();
  service_.Publish(Training());
  AwaitStates(1);
  service_.set_leader_cause("coordinator at h:1 has not answered; last decided step 5");
  service_.set_down(true);
  EXPECT_EQ(AwaitFailure(), "coordinator at h:1 has not answered; last decided step 5");
  EXPECT_EQ(service_.connected().back(), "h:10");
  (*membership)->Leave();
}

TEST_F(MembershipTest, WhenTheStepLeaderIsLostTooItsOwnWordsCount) {
  auto membership = Join(absl::Milliseconds(100));
  ASSERT_TRUE(membership.ok()) << membership.status();
  service_.Publish(Training());
  AwaitStates(1);
  service_.set_down(true);
  EXPECT_EQ(AwaitFailure().find("coordinator at h:1 has not answered since "), 0);
  (*membership)->Leave();
  EXPECT_EQ(service_.leaves(), 0);  // nobody to tell
}

TEST_F(MembershipTest, AFencedMemberEnds) {
  auto membership = Join(absl::Milliseconds(100));
  ASSERT_TRUE(membership.ok()) << membership.status();
  service_.set_heartbeat(absl::AbortedError("member 7 has a newer incarnation"));
  const std::string cause = AwaitFailure();
  EXPECT_NE(cause.find("fenced it off: member 7 has a newer incarnation"), std::string::npos)
      << cause;
}

TEST_F(MembershipTest, WhoWasToldToGoSaysSoUntilItIsHeard) {
  auto membership = Join();
  ASSERT_TRUE(membership.ok()) << membership.status();
  service_.set_unheard_leaves(2);
  (*membership)->Depart();
  EXPECT_EQ(service_.leaves(), 3);
  EXPECT_EQ(service_.departs(), 3);
}

TEST_F(MembershipTest, WhomNobodyHearsGoesAfterItsLease) {
  auto membership = Join(absl::Milliseconds(100));
  ASSERT_TRUE(membership.ok()) << membership.status();
  service_.set_unheard_leaves(1'000'000);
  (*membership)->Depart();
  EXPECT_GT(service_.departs(), 1);
  EXPECT_FALSE((*membership)->failure().has_value());
}

TEST_F(MembershipTest, LeavingEndsTheHeartbeats) {
  auto membership = Join(absl::Milliseconds(40));
  ASSERT_TRUE(membership.ok()) << membership.status();
  service_.AwaitHeartbeats(1);
  (*membership)->Leave();
  EXPECT_EQ(service_.leaves(), 1);
  service_.set_heartbeat(absl::AbortedError("who?"));
  EXPECT_FALSE((*membership)->failure().has_value());
}

}  // namespace
}  // namespace parley
