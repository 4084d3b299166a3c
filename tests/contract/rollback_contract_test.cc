// The job goes back to a checkpoint, with and without a new shard in the place of a lost one: over
// every implementation of the client interfaces, in each mode.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/clock/steady_now.h"
#include "common/job/job_file.h"
#include "tests/contract/contract_test.h"
#include "tests/contract/faulty_connector.h"

namespace parley {
namespace {

constexpr uint64_t kSamples = 46;  // the last step or lease of an epoch is partial
constexpr uint64_t kEpochs = 3;
constexpr uint64_t kTestSamples = 100;

// Two workers with batches of 4.
struct Mode {
  const char* job;
  uint64_t epoch_version;  // verdicts in a data epoch
  bool in_step;            // all workers make a step together
};
constexpr Mode kSync = {"consistency { sync { reduction: SUM } }", 6, true};
constexpr Mode kModes[] = {
    kSync,
    {"threads: 1 consistency { sync { reduction: SUM deterministic: true } }", 6, true},
    {"consistency { bounded { bound: 1 reduction: SUM } }", 12, false},
    {"consistency { async { reduction: SUM } }", 12, false},
};

std::string JobText(const Mode& mode) { return absl::StrCat("epochs: ", kEpochs, " ", mode.job); }

// Small integers, so that float sums are exact.
float GradientOf(uint64_t sample, size_t tensor, size_t element) {
  return static_cast<float>((sample * 7 + tensor * 3 + element) % 5) - 2;
}

// With SGD of rate 1 each data epoch takes away the sum of the gradients of all samples, whoever
// computes which, in which order, and how often in vain.
float ValueAfter(uint64_t epochs, size_t tensor, size_t element) {
  float sum = 0;
  for (uint64_t sample = 0; sample < kSamples; ++sample) sum += GradientOf(sample, tensor, element);
  return -sum * static_cast<float>(epochs);
}

void ExpectValuesAfter(uint64_t epochs, const Session& session) {
  for (const size_t tensor : {0, 1}) {
    float expected[5];
    for (size_t i = 0; i < 5; ++i) expected[i] = ValueAfter(epochs, tensor, i);
    const absl::Span<const float> values = As<float>(session.parameter(tensor));
    // An expectation of each would take most of the test's time under sanitizers.
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] == expected[i % 5]) continue;
      FAIL() << "tensor " << tensor << " element " << i << " is " << values[i] << " and not "
             << expected[i % 5];
    }
  }
}

// The checkpoint after the first data epoch.
std::string AfterTheFirstEpoch(const std::string&, const TensorSpec& tensor, const Slice& slice) {
  if (tensor.buffer()) return std::string(sizeof(int64_t), '\0');
  std::string bytes((slice.end() - slice.begin()) * sizeof(float), '\0');
  for (uint64_t i = slice.begin(); i < slice.end(); ++i) {
    const float value = ValueAfter(1, tensor.name() == "big" ? 0 : 1, i % 5);
    std::memcpy(bytes.data() + (i - slice.begin()) * sizeof(float), &value, sizeof(float));
  }
  return bytes;
}

// What one worker met.
struct Course {
  int stale = 0;                    // steps that did not count
  int not_over = 0;                 // answers of Finish
  std::vector<uint64_t> evaluated;  // epochs
};

// When the job goes back: each is asked at its point, by every worker.
struct Moments {
  std::function<void(Session&, const StepPlan&)> in_step = [](Session&, const StepPlan&) {};
  std::function<void(Session&)> after_step = [](Session&) {};  // before it pulls
  std::function<void(Session&)> at_end = [](Session&) {};
  std::function<void(Session&, uint64_t epoch)> in_evaluation = [](Session&, uint64_t) {};
};

class RollbackContract : public ContractTest {
 protected:
  std::unique_ptr<LocalCluster> MakeClusterOf(const Mode& mode) const {
    auto cluster = MakeCluster(2, 2, JobText(mode));
    cluster->set_checkpoint(AfterTheFirstEpoch);
    return cluster;
  }

  // To the checkpoint, once.
  static void GoBack(LocalCluster& cluster, const Mode& mode, std::optional<uint32_t> lost) {
    DataPosition position;
    position.set_epoch(1);
    cluster.GoBack(mode.epoch_version, position, lost);
  }

  // In the second step of the second data epoch, when the other worker has come so far too.
  static Moments InAStep(LocalCluster& cluster, const Mode& mode, std::optional<uint32_t> lost) {
    struct Progress {
      absl::Notification other_is_there, first_is_there;
      std::atomic<bool> is_back = false;
    };
    Moments moments;
    moments.in_step = [&cluster, mode, lost, progress = std::make_shared<Progress>()](
                          Session& session, const StepPlan& plan) {
      if (session.version() <= mode.epoch_version || progress->is_back) return;
      if (session.ordinal() == 1) {
        if (!progress->other_is_there.HasBeenNotified()) progress->other_is_there.Notify();
        // Or, where workers do not wait for each other, it might use up the epoch by itself.
        ASSERT_TRUE(progress->first_is_there.WaitForNotificationWithTimeout(absl::Minutes(1)));
        return;
      }
      progress->first_is_there.Notify();
      ASSERT_TRUE(progress->other_is_there.WaitForNotificationWithTimeout(absl::Minutes(1)));
      EXPECT_EQ(plan.data_epoch, 1);
      progress->is_back = true;
      GoBack(cluster, mode, lost);
    };
    return moments;
  }

  static void Evaluate(Session& session, const Moments& moments, Course& course) {
    while (true) {
      const auto due = session.PullEvaluation();
      ASSERT_TRUE(due.ok()) << due.status();
      if (!due->has_value()) return;
      ExpectValuesAfter((*due)->epoch, session);
      course.evaluated.push_back((*due)->epoch);
      moments.in_evaluation(session, (*due)->epoch);
      Evaluation part;
      part.set_version((*due)->version);
      part.set_epoch((*due)->epoch);
      part.set_samples((*due)->samples.end() - (*due)->samples.begin());
      // Another number each time: the coordinator refuses two for one version.
      part.set_loss_sum(static_cast<double>(course.evaluated.size()));
      const absl::Status reported = session.ReportEvaluation(part).status();
      ASSERT_TRUE(reported.ok()) << reported;
      const absl::Status pulled = session.Pull();
      ASSERT_TRUE(pulled.ok()) << pulled;
    }
  }

  static void Step(Session& session, const StepPlan& plan, const Moments& moments, Course& course) {
    for (const size_t tensor : {1, 0}) {
      const absl::Span<float> gradient = As<float>(session.gradient(tensor));
      float sums[5] = {};
      for (size_t i = 0; i < 5; ++i) {
        for (const uint64_t sample : plan.samples) sums[i] += GradientOf(sample, tensor, i);
      }
      for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = sums[i % 5];
      const absl::Status pushed = session.Push(tensor);
      ASSERT_TRUE(pushed.ok()) << pushed;
      if (tensor == 1) moments.in_step(session, plan);
    }
    const auto verdict = session.Complete(1.0);
    ASSERT_TRUE(verdict.ok()) << verdict.status();
    if (verdict->outcome() == Verdict::STALE) ++course.stale;
    moments.after_step(session);
    const absl::Status pulled = session.Pull();
    ASSERT_TRUE(pulled.ok()) << pulled;
  }

  // A user's whole loop.
  static Course Train(Session& session, const Moments& moments) {
    Course course;
    const uint64_t member_of = session.ordinal();
    StartTraining(session, kSamples, kTestSamples);
    while (!testing::Test::HasFatalFailure()) {
      Evaluate(session, moments, course);
      if (testing::Test::HasFatalFailure()) break;
      if (const auto plan = session.NextStep()) {
        Step(session, *plan, moments, course);
        continue;
      }
      moments.at_end(session);
      const absl::StatusOr<bool> finished = session.Finish({});
      EXPECT_TRUE(finished.ok()) << finished.status();
      if (!finished.ok()) break;
      if (*finished) {
        ExpectValuesAfter(kEpochs, session);
        break;
      }
      ++course.not_over;
      const absl::Status pulled = session.Pull();
      EXPECT_TRUE(pulled.ok()) << pulled;
      EXPECT_EQ(session.data_epochs(), 1);
    }
    EXPECT_EQ(session.ordinal(), member_of);
    EXPECT_EQ(session.epochs().job, 2);
    return course;
  }

  static void ExpectWholeJob(LocalCluster& cluster, const Mode& mode) {
    for (const uint32_t shard : {0, 1}) EXPECT_EQ(cluster.shard(shard).AwaitEnd(), "");
    const GetStatusReply status = cluster.Status();
    EXPECT_EQ(status.phase(), FINISHED);
    EXPECT_EQ(status.job_epoch(), 2);
    EXPECT_EQ(status.step(), kEpochs * mode.epoch_version);
    EXPECT_EQ(status.samples(), kEpochs * kSamples);
    ASSERT_EQ(status.evaluations_size(), kEpochs);
    for (uint64_t epoch = 1; epoch <= kEpochs; ++epoch) {
      const Evaluation& evaluation = status.evaluations(static_cast<int>(epoch) - 1);
      EXPECT_EQ(evaluation.version(), epoch * mode.epoch_version);
      EXPECT_EQ(evaluation.samples(), kTestSamples);
    }
    // Nobody has joined again: two shards, perhaps one more, and two workers.
    EXPECT_LE(status.members_size(), 5);
    for (const MemberStatus& member : status.members()) {
      if (member.member().role() == WORKER) {
        EXPECT_LE(member.member().id(), 4u);
      }
    }
  }
};
PARLEY_OVER_ALL_TRANSPORTS(RollbackContract);

TEST_P(RollbackContract, InTheMiddleOfAStep) {
  for (const Mode& mode : kModes) {
    for (const std::optional<uint32_t> lost : {std::optional<uint32_t>(), {0}, {1}}) {
      SCOPED_TRACE(absl::StrCat(mode.job, lost ? absl::StrCat(" without shard ", *lost) : ""));
      auto cluster = MakeClusterOf(mode);
      const Moments moments = InAStep(*cluster, mode, lost);
      cluster->RunWorkers(2, [&](Session& session) {
        const Course course = Train(session, moments);
        EXPECT_EQ(course.not_over, 0);
        if (session.ordinal() == 0 || mode.in_step) {
          EXPECT_EQ(course.stale, 1);
        }
      });
      ExpectWholeJob(*cluster, mode);
    }
  }
}

TEST_P(RollbackContract, WhileAWorkerFinishes) {
  for (const Mode& mode : kModes) {
    for (const std::optional<uint32_t> lost : {std::optional<uint32_t>(), {0}}) {
      SCOPED_TRACE(absl::StrCat(mode.job, lost ? " without shard 0" : ""));
      auto cluster = MakeClusterOf(mode);
      std::atomic<bool> is_back = false;
      Moments moments;
      moments.at_end = [&](Session& session) {
        if (session.ordinal() != 0 || is_back.exchange(true)) return;
        EXPECT_TRUE(cluster->coordinator().AwaitFinished(1));
        GoBack(*cluster, mode, lost);
      };
      cluster->RunWorkers(2, [&](Session& session) {
        const Course course = Train(session, moments);
        EXPECT_EQ(course.not_over, 1) << "worker " << session.ordinal();
        EXPECT_EQ(course.stale, 0);
        EXPECT_EQ(course.evaluated, (std::vector<uint64_t>{1, 2, 3, 2, 3}));
      });
      ExpectWholeJob(*cluster, mode);
    }
  }
}

TEST_P(RollbackContract, InAnEvaluation) {
  for (const Mode& mode : kModes) {
    SCOPED_TRACE(mode.job);
    auto cluster = MakeClusterOf(mode);
    std::atomic<bool> is_back = false;
    Moments moments;
    moments.in_evaluation = [&](Session& session, uint64_t epoch) {
      if (session.ordinal() != 0 || epoch != 2 || is_back.exchange(true)) return;
      GoBack(*cluster, mode, /*lost=*/1);
    };
    cluster->RunWorkers(2, [&](Session& session) {
      const Course course = Train(session, moments);
      if (session.ordinal() != 0) return;
      // Where no step holds the workers together one may leave it out (docs/clocked.md).
      const bool left_out = !mode.in_step && course.evaluated.size() == 3;
      EXPECT_EQ(course.evaluated,
                left_out ? (std::vector<uint64_t>{1, 2, 3}) : (std::vector<uint64_t>{1, 2, 2, 3}));
    });
    ExpectWholeJob(*cluster, mode);
  }
}

// A worker's part was not made, or not reported, when the job went back to that very version.
TEST_P(RollbackContract, TheEvaluationOfTheCheckpointsVersionIsMadeWhole) {
  for (const bool is_made : {false, true}) {
    SCOPED_TRACE(is_made ? "made" : "not made");
    auto cluster = MakeClusterOf(kSync);
    std::atomic<bool> is_back = false;
    const auto go_back = [&](Session& session) {
      if (session.ordinal() != 0 || session.version() != kSync.epoch_version) return;
      if (!is_back.exchange(true)) GoBack(*cluster, kSync, /*lost=*/0);
    };
    Moments moments;
    if (is_made) {
      moments.in_evaluation = [&](Session& session, uint64_t) { go_back(session); };
    } else {
      moments.after_step = go_back;
    }
    cluster->RunWorkers(2, [&](Session& session) { Train(session, moments); });
    ExpectWholeJob(*cluster, kSync);
  }
}

TEST_P(RollbackContract, SumsStayExactWhereMessagesAreLostAndDoubled) {
  for (const Mode& mode : kModes) {
    SCOPED_TRACE(mode.job);
    auto cluster = MakeClusterOf(mode);
    FaultyConnector faulty(cluster->transport().connector(), 17);
    const Moments moments = InAStep(*cluster, mode, /*lost=*/1);
    cluster->RunWorkers(
        2, [&](Session& session) { Train(session, moments); }, faulty);
    ExpectWholeJob(*cluster, mode);
    EXPECT_GT(faulty.faults(), 10);
  }
}

// The machine's; but what is to be done later than at once is never done, until it is let go. So no
// call is tried a third or fourth time.
class NoRetries final : public Runtime {
 public:
  absl::Time Now() const override { return real_->Now(); }
  std::shared_ptr<Timers> MakeTimers() override {
    return std::make_shared<Hasty>(this, real_->MakeTimers());
  }
  bool Await(absl::Mutex& mu, const absl::Condition& condition, absl::Time deadline) override {
    return real_->Await(mu, condition, deadline);
  }
  uint64_t DrawIncarnation() override { return real_->DrawIncarnation(); }
  int64_t pid() const override { return real_->pid(); }

  void AwaitDropped() {
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(
        +[](int* dropped) { return *dropped > 0; }, &dropped_));
  }
  void LetGo() {
    absl::MutexLock lock(&mu_);
    lets_go_ = true;
  }

 private:
  class Hasty final : public Timers {
   public:
    Hasty(NoRetries* owner, std::shared_ptr<Timers> real) : owner_(owner), real_(std::move(real)) {}
    absl::Time Now() const override { return real_->Now(); }
    void RunAt(absl::Time when, std::function<void()> task) override {
      if (when - Now() < absl::Milliseconds(100) || owner_->Allows()) {
        real_->RunAt(when, std::move(task));
      }
    }
    void Stop() override { real_->Stop(); }

   private:
    NoRetries* const owner_;
    const std::shared_ptr<Timers> real_;
  };

  bool Allows() {
    absl::MutexLock lock(&mu_);
    if (!lets_go_) ++dropped_;
    return lets_go_;
  }

  const std::shared_ptr<Runtime> real_ = RealRuntime();
  absl::Mutex mu_;
  int dropped_ ABSL_GUARDED_BY(mu_) = 0;
  bool lets_go_ ABSL_GUARDED_BY(mu_) = false;
};

TEST_P(RollbackContract, TheNewStateWakesWhoWaitsForADeadShard) {
  const Mode mode = {kSync.job, 12, true};  // of one worker
  LocalCluster cluster(MakeTransport(), ContractJob(1, 2, JobText(mode)));
  cluster.set_checkpoint(AfterTheFirstEpoch);
  const auto runtime = std::make_shared<NoRetries>();
  Session::Options options;
  options.job = cluster.job();
  options.coordinator = cluster.coordinator_address();
  options.address = "127.0.0.1:60000";
  options.runtime = runtime;
  auto session = Session::Join(options, cluster.transport().connector());
  ASSERT_TRUE(session.ok()) << session.status();
  std::thread other;
  bool is_back = false;
  absl::Time told;
  Moments moments;
  moments.in_step = [&](Session&, const StepPlan& plan) {
    if (plan.data_epoch != 1 || std::exchange(is_back, true)) return;
    cluster.shard(1).Stop();
    other = std::thread([&] {
      runtime->AwaitDropped();
      runtime->LetGo();
      told = SteadyNow();
      GoBack(cluster, mode, /*lost=*/1);
    });
  };
  const Course course = Train(**session, moments);
  other.join();
  EXPECT_EQ(course.stale, 1);
  // Else it would have waited for stall_timeout, and more.
  EXPECT_LT(SteadyNow() - told, StallTimeout(cluster.job()));
  ExpectWholeJob(cluster, mode);
}

// Only the coordinator says where the job is.
TEST_P(RollbackContract, AShardThatAloneSaysThatTheJobWentBackIsNotBelieved) {
  auto cluster = MakeCluster(1, 1, "epochs: 1 autonomy: '0s'");
  FaultyConnector faulty(cluster->transport().connector(), 1);
  cluster->RunWorkers(
      1,
      [&](Session& session) {
        StartTraining(session, kSamples);
        ASSERT_TRUE(session.NextStep().has_value());
        faulty.Refuse(absl::AbortedError("the job has been rolled back to step 3"));
        const absl::Status refused = session.Complete(0).status();
        EXPECT_EQ(refused,
                  absl::AbortedError("the job has been rolled back to step 3; the coordinator has "
                                     "not said within 4s where the job is"));
        EXPECT_EQ(session.epochs().job, 1);
      },
      faulty);
}

}  // namespace
}  // namespace parley
