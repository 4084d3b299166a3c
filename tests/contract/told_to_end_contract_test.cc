// Who is told to end while it joins anew goes, and the job goes on without it.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "client/forwarding_coordinator.h"
#include "tests/contract/contract_test.h"
#include "tests/contract/forwarding_connector.h"

namespace parley {
namespace {

// Makes all calls over another connector; from Expel on the coordinator seems not to know a member
// any more.
class ExpellingConnector final : public ForwardingConnector {
 public:
  explicit ExpellingConnector(Connector& to) : ForwardingConnector(to) {}
  std::shared_ptr<CoordinatorClient> ConnectCoordinator(const std::string& address) override {
    return std::make_shared<Coordinator>(ForwardingConnector::ConnectCoordinator(address), *this);
  }

  // Who joins from now on, until TakeIn, gets no place; or gets one, and `joined` is called before
  // it hears of it; or has one, and `registers` is called, and its model is not registered.
  struct Hooks {
    bool is_full = false;
    std::function<void()> joined;
    std::function<void()> registers;
  };
  void Expel(uint64_t member, Hooks hooks) {
    absl::MutexLock lock(&mu_);
    expelled_ = member;
    hooks_ = std::move(hooks);
  }
  void TakeIn() {
    absl::MutexLock lock(&mu_);
    hooks_ = Hooks();
  }
  // Until somebody has tried to join since.
  void AwaitJoin() {
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(&tries_));
  }
  // Whether somebody has left who is not the one, at once. (Who fails waits for a cause first.)
  bool goes() const {
    absl::MutexLock lock(&mu_);
    return goes_;
  }

 private:
  class Coordinator final : public ForwardingCoordinator<Coordinator> {
   public:
    Coordinator(std::shared_ptr<CoordinatorClient> to, ExpellingConnector& owner)
        : to_(std::move(to)), owner_(owner) {}
    template <class Request, class Reply>
    void Forward(CoordinatorMethod<Request, Reply> method, const Request& request,
                 absl::Time deadline, Done<Reply> done) {
      (to_.get()->*method)(request, deadline, std::move(done));
    }
    void Join(const JoinRequest& request, absl::Time deadline, Done<JoinReply> done) override {
      Hooks hooks;
      {
        absl::MutexLock lock(&owner_.mu_);
        owner_.tries_ = owner_.expelled_ != 0;
        hooks = owner_.hooks_;
      }
      if (hooks.is_full) return done(absl::ResourceExhaustedError("no place"));
      to_->Join(request, deadline,
                [joined = hooks.joined, done](const absl::StatusOr<JoinReply>& reply) {
                  if (joined && reply.ok()) joined();
                  done(reply);
                });
    }
    void RegisterModel(const RegisterModelRequest& request, absl::Time deadline,
                       Done<RegisterModelReply> done) override {
      std::function<void()> registers;
      {
        absl::MutexLock lock(&owner_.mu_);
        registers = owner_.hooks_.registers;
      }
      if (!registers) return to_->RegisterModel(request, deadline, std::move(done));
      registers();
      done(absl::UnavailableError("not now"));
    }
    void Heartbeat(const HeartbeatRequest& request, absl::Time deadline,
                   Done<HeartbeatReply> done) override {
      if (owner_.expelled() == request.header().member()) {
        return done(absl::AbortedError("it was silent for too long"));
      }
      to_->Heartbeat(request, deadline, std::move(done));
    }
    void Leave(const LeaveRequest& request, absl::Time deadline, Done<LeaveReply> done) override {
      {
        absl::MutexLock lock(&owner_.mu_);
        if (request.header().member() != owner_.expelled_) owner_.goes_ = true;
      }
      to_->Leave(request, deadline, std::move(done));
    }

   private:
    const std::shared_ptr<CoordinatorClient> to_;
    ExpellingConnector& owner_;
  };

  uint64_t expelled() const {
    absl::MutexLock lock(&mu_);
    return expelled_;
  }

  mutable absl::Mutex mu_;
  uint64_t expelled_ ABSL_GUARDED_BY(mu_) = 0;  // 0: nobody
  Hooks hooks_ ABSL_GUARDED_BY(mu_);
  bool tries_ ABSL_GUARDED_BY(mu_) = false;
  bool goes_ ABSL_GUARDED_BY(mu_) = false;
};

class WhoIsToldToEnd : public ContractTest {
 protected:
  // What it does when it is told.
  enum class When { kWaitsForAPlace, kGetsAPlace, kWaitsForAView };
  static constexpr When kAll[] = {When::kWaitsForAPlace, When::kGetsAPlace, When::kWaitsForAView};
  // grace: of the job.
  void GoesWhen(When when, const std::string& grace, const std::function<void(Session&)>& tell_it) {
    JobConfig job = ContractJob(2, 1, "steps: 100 consistency { sync { reduction: SUM } }");
    job.mutable_cluster()->set_min_workers(1);
    job.set_preemption_grace(grace);
    LocalCluster cluster(MakeTransport(), job);
    ExpellingConnector expelling(cluster.transport().connector());
    absl::Notification over;
    const auto go = [&](Session& session) {
      const auto tell = [&] { tell_it(session); };
      const GetStatusReply status = cluster.Status();
      for (const MemberStatus& one : status.members()) {
        if (one.member().role() != WORKER || one.member().ordinal() != 1) continue;
        ExpellingConnector::Hooks hooks;
        hooks.is_full = when == When::kWaitsForAPlace;
        if (when == When::kGetsAPlace) hooks.joined = tell;
        if (when == When::kWaitsForAView) hooks.registers = tell;
        expelling.Expel(one.member().id(), std::move(hooks));
      }
      absl::Notification ended;
      std::thread signals([&] {
        if (when == When::kWaitsForAPlace) {
          expelling.AwaitJoin();
          tell();
        }
        // Without an end of its own it waits longer than the test is to last.
        if (!ended.WaitForNotificationWithTimeout(absl::Seconds(30))) expelling.TakeIn();
      });
      const absl::Status status_of_step = session.Complete(0).status();
      ended.Notify();
      signals.join();
      EXPECT_EQ(status_of_step.code(), absl::StatusCode::kAborted) << status_of_step;
      const auto cause = session.failure();
      ASSERT_TRUE(cause.has_value());
      EXPECT_EQ(status_of_step.message(), cause->text());
      EXPECT_TRUE(cause->preempted());
      EXPECT_NE(cause->text().find(": preempted by SIGTERM; last decided step 0"),
                std::string::npos)
          << cause->text();
      EXPECT_EQ(expelling.goes(), when == When::kGetsAPlace) << "the place that it got is free";
      EXPECT_EQ(cluster.Status().phase(), TRAINING) << "the job goes on without it";
    };
    cluster.RunWorkers(
        2,
        [&](Session& session) {
          StartTraining(session, 4000);
          if (session.ordinal() == 1) {
            EXPECT_TRUE(session.NextStep().has_value());
            go(session);
            over.Notify();
          } else {
            over.WaitForNotification();
            session.Fail("the test is over", false);
          }
        },
        expelling);
  }
};
PARLEY_OVER_ALL_TRANSPORTS(WhoIsToldToEnd);

TEST_P(WhoIsToldToEnd, WhileItJoinsAnewGoes) {
  const auto twice = [](Session& session) {
    session.Preempt("preempted by SIGTERM", absl::Seconds(25));
    session.Preempt("preempted by SIGUSR1", absl::Seconds(85));
  };
  for (const When when : kAll) GoesWhen(when, "25s", twice);
}

// Of a job without a grace, and of SIGINT: its training thread would end it before its next step.
TEST_P(WhoIsToldToEnd, WhoseStepIsToEndFirstGoesTooWhileItJoinsAnew) {
  const auto heard = [](Session& session) { session.JoinNoMore("preempted by SIGTERM"); };
  for (const When when : kAll) GoesWhen(when, "0s", heard);
}

TEST_P(WhoIsToldToEnd, WhoFailsWithThatGoesTooWhileItJoinsAnew) {
  const auto fail = [](Session& session) {
    EXPECT_TRUE(session.Fail("preempted by SIGTERM", /*preempted=*/true).preempted());
  };
  for (const When when : kAll) GoesWhen(when, "0s", fail);
}

}  // namespace
}  // namespace parley
