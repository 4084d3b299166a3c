#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "client/forwarding_coordinator.h"
#include "client/forwarding_shard.h"
#include "common/clock/steady_now.h"
#include "tests/contract/contract_test.h"
#include "tests/contract/faulty_connector.h"
#include "tests/contract/forwarding_connector.h"
#include "tests/contract/overhearing_connector.h"

namespace parley {
namespace {

class FailureContract : public ContractTest {
 protected:
  void Heard(const std::string& text) {
    absl::MutexLock lock(&mu_);
    heard_.insert(text);
  }
  std::multiset<std::string> heard() {
    absl::MutexLock lock(&mu_);
    return heard_;
  }

 private:
  absl::Mutex mu_;
  std::multiset<std::string> heard_ ABSL_GUARDED_BY(mu_);
};
PARLEY_OVER_ALL_TRANSPORTS(FailureContract);

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

constexpr char kSum[] = "steps: 100 consistency { sync { reduction: SUM } }";

TEST_P(FailureContract, EveryMemberTellsTheReasonThatOneGave) {
  auto cluster = MakeCluster(2, 2, kSum);
  absl::Notification third_step;  // of the one that goes on
  cluster->RunWorkers(2, [&](Session& session) {
    StartTraining(session, 4000);
    for (int step = 1; step <= 3; ++step) {
      ASSERT_TRUE(session.NextStep().has_value());
      if (step == 3 && session.ordinal() == 0) third_step.Notify();
      if (step == 3 && session.ordinal() == 1) {
        ASSERT_TRUE(third_step.WaitForNotificationWithTimeout(absl::Minutes(1)));
        ASSERT_TRUE(cluster->coordinator().AwaitStep(2));
        Heard(session.Fail("the disk is full", false).text());
        return;
      }
      const auto verdict = session.Complete(0);
      if (step < 3) {
        ASSERT_TRUE(verdict.ok()) << verdict.status();
        continue;
      }
      // Blocked on the one that failed; later calls fail at once, too.
      Heard(std::string(verdict.status().message()));
      EXPECT_EQ(session.Pull(), verdict.status());
      EXPECT_EQ(session.Push(0), verdict.status());
      ASSERT_TRUE(session.failure().has_value());
      Heard(session.failure()->text());
    }
  });
  for (uint32_t shard : {0, 1}) Heard(cluster->shard(shard).AwaitEnd());
  const std::multiset<std::string> texts = heard();
  EXPECT_EQ(texts.size(), 5);
  const std::string text = *texts.begin();
  EXPECT_EQ(texts.count(text), texts.size());
  EXPECT_EQ(text.find("worker 1 at 127.0.0.1:6000"), 0) << text;
  EXPECT_NE(text.find(": the disk is full; last decided step 2"), std::string::npos) << text;
}

TEST_P(FailureContract, WhenTheCoordinatorIsLostAllTellTheStepLeadersWords) {
  auto cluster = MakeCluster(2, 2, "steps: 2 consistency { sync { reduction: SUM } }");
  absl::Time cut;
  cluster->RunWorkers(2, [&](Session& session) {
    StartTraining(session, 4000);
    ASSERT_TRUE(session.NextStep().has_value());
    ASSERT_TRUE(session.Complete(0).ok());
    if (session.ordinal() == 1) {
      cut = SteadyNow();
      cluster->CutCoordinator();
    }
    ASSERT_TRUE(session.NextStep().has_value());
    ASSERT_TRUE(session.Complete(0).ok());
    // Nobody hears that they have finished: the wait ends with the job.
    const absl::Status ended = session.Finish({}).status();
    ASSERT_TRUE(session.failure().has_value()) << ended;
    EXPECT_EQ(ended.message(), session.failure()->text());
    Heard(session.failure()->text());
  });
  for (uint32_t shard : {0, 1}) Heard(cluster->shard(shard).AwaitEnd());
  EXPECT_LT(SteadyNow() - cut, 2 * absl::Seconds(2));
  const std::multiset<std::string> texts = heard();
  EXPECT_EQ(texts.size(), 4);
  const std::string text = *texts.begin();
  EXPECT_EQ(texts.count(text), texts.size());
  EXPECT_EQ(text.find(absl::StrCat("coordinator at ", cluster->coordinator_address(),
                                   " has not answered since ")),
            0)
      << text;
  EXPECT_NE(text.find("; last decided step 2"), std::string::npos) << text;
}

TEST_P(FailureContract, AStepWhoseValuesWereWrittenMeanwhileDoesNotCount) {
  auto cluster = MakeCluster(1, 1, kSum);
  OverhearingConnector connector(cluster->transport().connector());
  cluster->RunWorkers(
      1,
      [&](Session& session) {
        TensorSpec large;  // so that most of a push does not wait for others
        large.set_name("w");
        large.set_dtype(F32);
        large.add_shape(5 << 18);
        ASSERT_TRUE(session.Register({large}, 4000, 0).ok());
        ASSERT_TRUE(session.Initialize({session.gradient(0)}).ok());
        ASSERT_TRUE(session.Pull().ok());
        ASSERT_TRUE(session.NextStep().has_value());
        ASSERT_TRUE(session.Push(0).ok());
        ASSERT_TRUE(session.Complete(0).ok());
        ASSERT_TRUE(session.Pull().ok());
        const std::vector<PushRequest> pushes = connector.pushes();
        const auto plan = session.NextStep();
        ASSERT_TRUE(plan.has_value());
        // With it the shard hears that the values were taken, and holds them no longer.
        ASSERT_TRUE(session.Push(0).ok());
        EXPECT_GT(connector.pushes().size(), pushes.size());
        connector.AwaitAnswers();
        // As if the job had gone on without it: the step is decided behind its back.
        auto shard = cluster->transport().connector().ConnectShard(cluster->shard_address(0));
        const absl::Time deadline = SteadyNow() + absl::Seconds(30);
        for (PushRequest push : pushes) {
          push.set_step(2);
          const auto reply =
              WaitFor<PushReply>([&](auto done) { shard->Push(push, deadline, std::move(done)); });
          ASSERT_TRUE(reply.ok()) << reply.status();
        }
        CompleteRequest complete = connector.complete();
        complete.set_step(2);
        complete.mutable_share()->mutable_ranges()->Assign(plan->contributor_ranges.begin(),
                                                           plan->contributor_ranges.end());
        const auto decided = WaitFor<CompleteReply>(
            [&](auto done) { shard->Complete(complete, deadline, std::move(done)); });
        ASSERT_TRUE(decided.ok()) << decided.status();
        ASSERT_EQ(decided->verdict().outcome(), Verdict::APPLY);
        const bool reads_the_shards_memory =
            !session.ShownParts(0, 0, session.parameter(0).size()).empty();
        EXPECT_EQ(reads_the_shards_memory, GetParam() == std::string_view("Local"));
        const auto verdict = session.Complete(0);
        ASSERT_TRUE(verdict.ok()) << verdict.status();
        EXPECT_EQ(verdict->outcome(), reads_the_shards_memory ? Verdict::STALE : Verdict::APPLY);
      },
      connector);
}

TEST_P(FailureContract, AWorkerOfAnotherJobIsRefusedAtOnce) {
  auto cluster = MakeCluster(1, 1, kSum);
  Session::Options options;
  options.coordinator = cluster->coordinator_address();
  options.address = "127.0.0.1:60000";
  options.job = ContractJob(1, 1, "steps: 99");  // same name, another file
  auto session = Session::Join(options, cluster->transport().connector());
  EXPECT_EQ(session.status().code(), absl::StatusCode::kInvalidArgument) << session.status();
  options.job = cluster->job();
  options.job.set_name("other");
  session = Session::Join(options, cluster->transport().connector());
  EXPECT_EQ(session.status().code(), absl::StatusCode::kNotFound) << session.status();
}

// The worker does nothing but try again, and the coordinator hears it all the time.
TEST_P(FailureContract, AWorkerThatReachesNoShardEndsTheJobAfterStallTimeout) {
  JobConfig job = ContractJob(1, 1, kSum);
  job.set_stall_timeout("4s");
  LocalCluster cluster(MakeTransport(), job);
  FaultyConnector cut(cluster.transport().connector(), 1);
  cluster.RunWorkers(
      1,
      [&](Session& session) {
        StartTraining(session, 4000);
        ASSERT_TRUE(session.NextStep().has_value());
        ASSERT_TRUE(session.Complete(0).ok());
        ASSERT_TRUE(session.Pull().ok());
        cut.Refuse(absl::UnavailableError("cut off"));
        const absl::Time since = SteadyNow();
        ASSERT_TRUE(session.NextStep().has_value());
        const absl::Status ended = session.Complete(0).status();
        EXPECT_EQ(ended.code(), absl::StatusCode::kAborted) << ended;
        for (const char* word : {"nobody has got on since", "worker 0 at ", "shard 0 at "}) {
          EXPECT_NE(ended.message().find(word), absl::string_view::npos) << ended;
        }
        EXPECT_GE(SteadyNow() - since, absl::Seconds(3));
        EXPECT_LE(SteadyNow() - since, absl::Seconds(30));
      },
      cut);
}

TEST_P(FailureContract, AnOlderIncarnationIsFenced) {
  auto cluster = MakeCluster(1, 1, kSum);
  cluster->RunWorkers(1, [&](Session& session) {
    StartTraining(session, 4000);
    auto coordinator =
        cluster->transport().connector().ConnectCoordinator(cluster->coordinator_address());
    auto shard = cluster->transport().connector().ConnectShard(cluster->shard_address(0));
    uint64_t member = 0;
    const GetStatusReply job = cluster->Status();
    for (const MemberStatus& status : job.members()) {
      if (status.member().role() == WORKER) member = status.member().id();
    }
    HeartbeatRequest heartbeat;
    heartbeat.mutable_header()->set_job("contract");
    heartbeat.mutable_header()->set_member(member);
    heartbeat.mutable_header()->set_incarnation(12345);
    heartbeat.mutable_header()->set_job_epoch(1);
    heartbeat.mutable_header()->set_view_epoch(1);
    const absl::Time deadline = SteadyNow() + absl::Seconds(10);
    EXPECT_EQ(WaitFor<HeartbeatReply>(
                  [&](auto done) { coordinator->Heartbeat(heartbeat, deadline, std::move(done)); })
                  .status()
                  .code(),
              absl::StatusCode::kAborted);
    PushRequest push;
    *push.mutable_header() = heartbeat.header();
    push.set_step(1);
    SliceData* slice = push.add_slices();
    slice->set_dtype(F32);
    EXPECT_EQ(WaitFor<PushReply>([&](auto done) { shard->Push(push, deadline, std::move(done)); })
                  .status()
                  .code(),
              absl::StatusCode::kAborted);
    // The member itself goes on.
    ASSERT_TRUE(session.NextStep().has_value());
    EXPECT_TRUE(session.Complete(0).ok());
  });
}

class WhoIsToldToEnd : public FailureContract {
 protected:
  // What it does when it is told.
  enum class When { kWaitsForAPlace, kGetsAPlace, kWaitsForAView };
  static constexpr When kAll[] = {When::kWaitsForAPlace, When::kGetsAPlace, When::kWaitsForAView};
  // grace: of the job.
  void GoesWhen(When when, const std::string& grace, const std::function<void(Session&)>& tell_it) {
    JobConfig job = ContractJob(2, 1, kSum);
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

// Makes all calls over another connector; hears what a worker's heartbeats tell, and can hold the
// shards' answers to its pulls.
class PacingConnector final : public ForwardingConnector {
 public:
  explicit PacingConnector(Connector& to) : ForwardingConnector(to) {}
  std::shared_ptr<CoordinatorClient> ConnectCoordinator(const std::string& address) override {
    return std::make_shared<Coordinator>(ForwardingConnector::ConnectCoordinator(address), *this);
  }
  std::shared_ptr<ShardClient> ConnectShard(const std::string& address) override {
    return std::make_shared<Shard>(ForwardingConnector::ConnectShard(address), address, *this);
  }

  // HeartbeatRequest.moves, with all that has happened before this call.
  uint64_t Moves() {
    absl::MutexLock lock(&mu_);
    // The next one may have been made before.
    for (const uint64_t next = heartbeats_ + 2; heartbeats_ < next;) changed_.Wait(&mu_);
    return moves_;
  }
  void HoldPulls() {
    absl::MutexLock lock(&mu_);
    holds_ = true;
  }
  // Until answers of so many shards are held.
  void AwaitHeld(size_t shards) {
    absl::MutexLock lock(&mu_);
    while (held_.size() < shards) changed_.Wait(&mu_);
  }
  // Those of one of them come, now and from now on.
  void LetOneAnswer() {
    std::vector<std::function<void()>> answers;
    {
      absl::MutexLock lock(&mu_);
      answers = std::move(held_.begin()->second);
      answering_.insert(held_.begin()->first);
      held_.erase(held_.begin());
    }
    for (const auto& answer : answers) answer();
  }
  void LetAllAnswer() {
    {
      absl::MutexLock lock(&mu_);
      holds_ = false;
    }
    while (HoldsAny()) LetOneAnswer();
  }

 private:
  class Coordinator final : public ForwardingCoordinator<Coordinator> {
   public:
    Coordinator(std::shared_ptr<CoordinatorClient> to, PacingConnector& owner)
        : to_(std::move(to)), owner_(owner) {}
    template <class Request, class Reply>
    void Forward(CoordinatorMethod<Request, Reply> method, const Request& request,
                 absl::Time deadline, Done<Reply> done) {
      (to_.get()->*method)(request, deadline, std::move(done));
    }
    void Heartbeat(const HeartbeatRequest& request, absl::Time deadline,
                   Done<HeartbeatReply> done) override {
      {
        absl::MutexLock lock(&owner_.mu_);
        ++owner_.heartbeats_;
        owner_.moves_ = request.moves();
        owner_.changed_.SignalAll();
      }
      to_->Heartbeat(request, deadline, std::move(done));
    }

   private:
    const std::shared_ptr<CoordinatorClient> to_;
    PacingConnector& owner_;
  };

  class Shard final : public ForwardingShard {
   public:
    Shard(std::shared_ptr<ShardClient> to, std::string address, PacingConnector& owner)
        : ForwardingShard(std::move(to)), address_(std::move(address)), owner_(owner) {}
    void PullTensors(const PullRequest& request, absl::Time deadline,
                     Done<TensorPull> done) override {
      remote()->PullTensors(request, deadline,
                            [&owner = owner_, address = address_,
                             done = std::move(done)](const absl::StatusOr<TensorPull>& reply) {
                              owner.Answer(address, [done, reply] { done(reply); });
                            });
    }

   private:
    const std::string address_;
    PacingConnector& owner_;
  };

  void Answer(const std::string& address, std::function<void()> answer) {
    {
      absl::MutexLock lock(&mu_);
      if (holds_ && answering_.count(address) == 0) {
        held_[address].push_back(std::move(answer));
        changed_.SignalAll();
        return;
      }
    }
    answer();
  }
  bool HoldsAny() const {
    absl::MutexLock lock(&mu_);
    return !held_.empty();
  }

  mutable absl::Mutex mu_;
  absl::CondVar changed_;
  uint64_t heartbeats_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t moves_ ABSL_GUARDED_BY(mu_) = 0;
  bool holds_ ABSL_GUARDED_BY(mu_) = false;
  std::set<std::string> answering_ ABSL_GUARDED_BY(mu_);  // addresses, though it holds
  std::map<std::string, std::vector<std::function<void()>>> held_ ABSL_GUARDED_BY(mu_);
};

// What keeps the coordinator from ending a job in which all wait for each other
// (coordinator_failure_test), however slow it is: a wait that ends, a push, and each answer of many
// that one wait is for.
TEST(Moves, AreWhateverAWorkerGetsOnBy) {
  constexpr uint32_t kShards = 6;
  LocalCluster cluster(MakeInProcessTransport(), ContractJob(1, kShards, kSum));
  PacingConnector pacing(cluster.transport().connector());
  cluster.RunWorkers(
      1,
      [&](Session& session) {
        std::vector<TensorSpec> tensors(kShards);  // too large to come with the verdict
        for (uint32_t i = 0; i < kShards; ++i) {
          tensors[i].set_name(absl::StrCat("w", i));
          tensors[i].set_dtype(F32);
          tensors[i].add_shape(80000);
        }
        ASSERT_TRUE(session.Register(tensors, 4000, 0).ok());
        std::vector<absl::Span<const std::byte>> zeros;
        for (uint32_t i = 0; i < kShards; ++i) zeros.push_back(session.gradient(i));
        ASSERT_TRUE(session.Initialize(zeros).ok());
        ASSERT_TRUE(session.Pull().ok());
        ASSERT_TRUE(session.NextStep().has_value());

        uint64_t moves = pacing.Moves();
        EXPECT_EQ(pacing.Moves(), moves) << "that time goes on is none";
        ASSERT_TRUE(session.AwaitPeers("another", [] { return true; }).ok());
        const uint64_t waited = pacing.Moves();
        EXPECT_GT(waited, moves);
        // Its answer is not looked at before somebody waits.
        ASSERT_TRUE(session.Push(0).ok());
        EXPECT_GT(pacing.Moves(), waited);

        pacing.HoldPulls();
        ASSERT_TRUE(session.Complete(0).ok());
        std::thread answers([&] {
          pacing.AwaitHeld(kShards);
          moves = pacing.Moves();
          for (uint32_t i = 1; i < kShards; ++i) {
            pacing.LetOneAnswer();
            const uint64_t now = pacing.Moves();
            EXPECT_GT(now, moves) << "answer " << i;
            moves = now;
          }
          pacing.LetAllAnswer();
        });
        EXPECT_TRUE(session.Pull().ok());
        answers.join();
      },
      pacing);
}

// Makes all calls over another connector. What a shard on this machine shows of its values is
// written again, as it seems, whenever the test says so.
class RewritingConnector final : public ForwardingConnector {
 public:
  explicit RewritingConnector(Connector& to) : ForwardingConnector(to) {}
  std::shared_ptr<CoordinatorClient> ConnectCoordinator(const std::string& address) override {
    return std::make_shared<Coordinator>(ForwardingConnector::ConnectCoordinator(address), *this);
  }
  std::shared_ptr<ShardClient> ConnectShard(const std::string& address) override {
    return std::make_shared<Shard>(ForwardingConnector::ConnectShard(address), *this);
  }

  void Rewrite() { ++count_; }
  int reports() const { return reports_; }  // of evaluations

 private:
  class Coordinator final : public ForwardingCoordinator<Coordinator> {
   public:
    Coordinator(std::shared_ptr<CoordinatorClient> to, RewritingConnector& owner)
        : to_(std::move(to)), owner_(owner) {}
    template <class Request, class Reply>
    void Forward(CoordinatorMethod<Request, Reply> method, const Request& request,
                 absl::Time deadline, Done<Reply> done) {
      (to_.get()->*method)(request, deadline, std::move(done));
    }
    void ReportEvaluation(const ReportEvaluationRequest& request, absl::Time deadline,
                          Done<ReportEvaluationReply> done) override {
      ++owner_.reports_;
      to_->ReportEvaluation(request, deadline, std::move(done));
    }

   private:
    const std::shared_ptr<CoordinatorClient> to_;
    RewritingConnector& owner_;
  };

  class Shard final : public ForwardingShard {
   public:
    Shard(std::shared_ptr<ShardClient> to, RewritingConnector& owner)
        : ForwardingShard(std::move(to)), owner_(owner) {}
    void PullTensors(const PullRequest& request, absl::Time deadline,
                     Done<TensorPull> done) override {
      remote()->PullTensors(
          request, deadline,
          [&count = owner_.count_, done = std::move(done)](absl::StatusOr<TensorPull> reply) {
            if (reply.ok()) {
              for (TensorSlice& slice : reply->slices) {
                if (slice.loan.has_value()) slice.loan = Loan{&count, count};
              }
            }
            done(std::move(reply));
          });
    }

   private:
    RewritingConnector& owner_;
  };

  std::atomic<uint64_t> count_ = 0;
  std::atomic<int> reports_ = 0;
};

TEST_P(FailureContract, AnEvaluationOfValuesThatWereWrittenMeanwhileIsMadeAnewAndCountsOnce) {
  auto cluster = MakeCluster(1, 1, "steps: 1");
  RewritingConnector rewriting(cluster->transport().connector());
  cluster->RunWorkers(
      1,
      [&](Session& session) {
        StartTraining(session, 4000, 100);
        ASSERT_TRUE(session.NextStep().has_value());
        ASSERT_TRUE(session.Complete(0).ok());
        ASSERT_TRUE(session.Pull().ok());
        const bool reads_the_shards_memory =
            !session.ShownParts(0, 0, session.parameter(0).size()).empty();
        EXPECT_EQ(reads_the_shards_memory, GetParam() == std::string_view("Local"));
        Evaluation part;
        part.set_version(1);
        part.set_epoch(1);
        part.set_samples(100);
        for (const bool is_written : {true, false}) {
          const auto due = session.PullEvaluation();
          ASSERT_TRUE(due.ok()) << due.status();
          if (!is_written && !reads_the_shards_memory) {
            EXPECT_FALSE(due->has_value());
            break;
          }
          ASSERT_TRUE(due->has_value());
          EXPECT_EQ((*due)->version, 1);
          if (is_written) rewriting.Rewrite();
          const auto taken = session.ReportEvaluation(part);
          ASSERT_TRUE(taken.ok()) << taken.status();
          EXPECT_EQ(*taken, !is_written || !reads_the_shards_memory);
          ASSERT_TRUE(session.Pull().ok());
        }
        EXPECT_FALSE(session.PullEvaluation()->has_value());
        ExpectTheEnd(session);
      },
      rewriting);
  EXPECT_EQ(rewriting.reports(), 1);
  const GetStatusReply status = cluster->Status();
  ASSERT_EQ(status.evaluations_size(), 1);
  EXPECT_EQ(status.evaluations(0).samples(), 100);
}

}  // namespace
}  // namespace parley
