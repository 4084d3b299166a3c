#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "client/forwarding_shard.h"
#include "client/runtime.h"
#include "client/timers.h"
#include "common/clock/steady_now.h"
#include "common/shared_memory/memory_source.h"
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

// As of a path of the data: a message with other bytes than UTF-8 would reach nobody.
TEST_P(FailureContract, AReasonThatIsNotUtf8ReachesEveryMemberToo) {
  auto cluster = MakeCluster(2, 1, kSum);
  absl::Notification second_step;  // of the one that goes on
  cluster->RunWorkers(2, [&](Session& session) {
    StartTraining(session, 4000);
    // The first step is over for both: else the one could hear of the end in its answer.
    ASSERT_TRUE(session.NextStep().has_value());
    ASSERT_TRUE(session.Complete(0).ok());
    ASSERT_TRUE(session.NextStep().has_value());
    if (session.ordinal() == 0) second_step.Notify();
    if (session.ordinal() == 1) {
      ASSERT_TRUE(second_step.WaitForNotificationWithTimeout(absl::Minutes(1)));
      ASSERT_TRUE(cluster->coordinator().AwaitStep(1));
      Heard(session.Fail("cannot read caf\xe9.jpg", false).text());
      return;
    }
    Heard(std::string(session.Complete(0).status().message()));
  });
  Heard(cluster->shard(0).AwaitEnd());
  const std::multiset<std::string> texts = heard();
  ASSERT_EQ(texts.size(), 3);
  EXPECT_EQ(texts.count(*texts.begin()), texts.size());
  EXPECT_NE(texts.begin()->find(": cannot read caf\xef\xbf\xbd.jpg; last"), std::string::npos)
      << *texts.begin();
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

// Keeps all pushes, and answers them when the memory goes that it gave for the gradients.
class LateConnector final : public ForwardingConnector, public MemorySource {
 public:
  explicit LateConnector(Connector& to) : ForwardingConnector(to) {}
  std::shared_ptr<ShardClient> ConnectShard(const std::string& address) override {
    return std::make_shared<Shard>(ForwardingConnector::ConnectShard(address), *this);
  }
  MemorySource* memory() override { return this; }
  absl::StatusOr<MemoryBlock> Allocate(size_t bytes) override {
    const auto block = std::make_shared<std::vector<std::byte>>(bytes + 64);
    std::byte* const data = block->data() + 64 - reinterpret_cast<uintptr_t>(block->data()) % 64;
    return MemoryBlock{data, bytes, {data, [this, block](const void*) { AnswerAll(); }}};
  }
  absl::Status Renew(const MemoryBlock& /*block*/) override {
    return absl::ResourceExhaustedError("none");
  }

  int pushes() const {
    absl::MutexLock lock(&mu_);
    return pushes_;
  }
  int pushes_when_answered() const {
    absl::MutexLock lock(&mu_);
    return pushes_when_answered_;
  }

 private:
  class Shard final : public ForwardingShard {
   public:
    Shard(std::shared_ptr<ShardClient> remote, LateConnector& late)
        : ForwardingShard(std::move(remote)), late_(late) {}
    bool ReadsLentMemory() const override { return false; }
    void PushTensors(const TensorPush&, absl::Time, Done<PushReply> done) override {
      absl::MutexLock lock(&late_.mu_);
      ++late_.pushes_;
      late_.held_.push_back(std::move(done));
    }

   private:
    LateConnector& late_;
  };

  void AnswerAll() {
    std::vector<Done<PushReply>> held;
    {
      absl::MutexLock lock(&mu_);
      pushes_when_answered_ = pushes_;
      held.swap(held_);
    }
    for (const Done<PushReply>& done : held) done(PushReply());
  }

  mutable absl::Mutex mu_;
  int pushes_ ABSL_GUARDED_BY(mu_) = 0;
  int pushes_when_answered_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<Done<PushReply>> held_ ABSL_GUARDED_BY(mu_);
};

// An acknowledgement makes room for what waits, which is read out of the gradients.
TEST_P(FailureContract, NothingIsSentOnceTheSessionsGradientsHaveGone) {
  auto cluster = MakeCluster(1, 1, kSum);
  LateConnector connector(cluster->transport().connector());
  Session::Options options;
  options.coordinator = cluster->coordinator_address();
  options.address = "127.0.0.1:60000";
  options.job = cluster->job();
  options.push_window_bytes = 1 << 10;  // one slice of the large tensor, and the next one waits
  auto session = Session::Join(options, connector);
  ASSERT_TRUE(session.ok()) << session.status();
  StartTraining(**session, 4000);
  ASSERT_TRUE((*session)->NextStep().has_value());
  // Of zeros: they are left out, and what is sent is no part of the gradients' memory.
  ASSERT_TRUE((*session)->Push(0).ok());
  ASSERT_EQ(connector.pushes(), 1);
  session->reset();
  EXPECT_EQ(connector.pushes_when_answered(), 1);
  EXPECT_EQ(connector.pushes(), 1);
}

// A process that can be made to find, as one that was stopped, that it is much later.
class StoppedRuntime final : public Runtime {
 public:
  void WakeLater(absl::Duration by) { *lost_ += absl::ToInt64Seconds(by); }

  absl::Time Now() const override { return machine_->Now() + absl::Seconds(lost_->load()); }
  std::shared_ptr<Timers> MakeTimers() override {
    return std::make_shared<StoppedTimers>(machine_->MakeTimers(), lost_);
  }
  bool Await(absl::Mutex& mu, const absl::Condition& condition, absl::Time deadline) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return machine_->Await(mu, condition, deadline - absl::Seconds(lost_->load()));
  }
  uint64_t DrawIncarnation() override { return machine_->DrawIncarnation(); }
  int64_t pid() const override { return machine_->pid(); }

 private:
  using Lost = std::shared_ptr<std::atomic<int64_t>>;  // seconds
  class StoppedTimers final : public Timers {
   public:
    StoppedTimers(std::shared_ptr<Timers> timers, Lost lost)
        : timers_(std::move(timers)), lost_(std::move(lost)) {}
    absl::Time Now() const override { return timers_->Now() + absl::Seconds(lost_->load()); }
    void RunAt(absl::Time when, std::function<void()> task) override {
      timers_->RunAt(when - absl::Seconds(lost_->load()), std::move(task));
    }
    void Stop() override { timers_->Stop(); }

   private:
    const std::shared_ptr<Timers> timers_;
    const Lost lost_;
  };

  const std::shared_ptr<Runtime> machine_ = RealRuntime();
  const Lost lost_ = std::make_shared<std::atomic<int64_t>>(0);
};

// As where a whole machine, or the job with its coordinator, stands still: its lease goes on.
TEST_P(FailureContract, AWorkerThatWasStoppedForLongWhileItWaitedGoesOnWaiting) {
  auto cluster = MakeCluster(2, 1, kSum);
  const auto runtime = std::make_shared<StoppedRuntime>();
  std::thread stopped([&] {
    Session::Options options;
    options.job = cluster->job();
    options.coordinator = cluster->coordinator_address();
    options.address = "127.0.0.1:60009";
    options.runtime = runtime;
    auto session = Session::Join(options, cluster->transport().connector());
    ASSERT_TRUE(session.ok()) << session.status();
    StartTraining(**session, 4000);
    ASSERT_TRUE((*session)->NextStep().has_value());
    const auto verdict = (*session)->Complete(0);
    ASSERT_TRUE(verdict.ok()) << verdict.status();
    EXPECT_EQ(verdict->outcome(), Verdict::APPLY);
  });
  cluster->RunWorkers(1, [&](Session& session) {
    StartTraining(session, 4000);
    ASSERT_TRUE(session.NextStep().has_value());
    absl::SleepFor(absl::Milliseconds(500));  // the other one waits for this one
    runtime->WakeLater(absl::Minutes(10));
    absl::SleepFor(absl::Seconds(2));
    EXPECT_TRUE(session.Complete(0).ok());
  });
  stopped.join();
}

}  // namespace
}  // namespace parley
