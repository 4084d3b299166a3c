// A job with a backup worker, of which one is slow: it waits for others, never for the clock.
#include <cstdint>
#include <vector>

#include "absl/synchronization/notification.h"
#include "tests/contract/contract_test.h"

namespace parley {
namespace {

class BackupContract : public ContractTest {};
PARLEY_OVER_ALL_TRANSPORTS(BackupContract);

// 10 ranges of 4 samples: with 2 of 3 workers a data epoch has 5 steps.
constexpr uint64_t kSamples = 40;
constexpr uint64_t kEpochSteps = 5;
constexpr uint32_t kSlow = 2;

float GradientOf(uint64_t sample, size_t element) {
  return static_cast<float>((sample * 31 + element) % 7) - 3;
}

// What the samples of that many data epochs make of the parameters, since each counts once.
float ValueAfter(uint64_t epochs, size_t element) {
  float sum = 0;
  for (uint64_t sample = 0; sample < kSamples; ++sample) sum += GradientOf(sample, element);
  return -sum * static_cast<float>(epochs);
}

void ExpectValuesAfter(uint64_t epochs, const Session& session) {
  for (size_t tensor : {0, 1}) {
    const absl::Span<const float> values = As<float>(session.parameter(tensor));
    for (size_t i = 0; i < values.size(); i += 997) {
      ASSERT_EQ(values[i], ValueAfter(epochs, i)) << "tensor " << tensor << " element " << i;
    }
  }
}

void PushGradients(Session& session, const StepPlan& plan) {
  for (size_t tensor : {0, 1}) {
    const absl::Span<float> gradient = As<float>(session.gradient(tensor));
    for (size_t i = 0; i < gradient.size(); ++i) {
      gradient[i] = 0;
      for (const uint64_t sample : plan.samples) gradient[i] += GradientOf(sample, i);
    }
    ASSERT_TRUE(session.Push(tensor).ok());
  }
}

void EvaluateWhatIsDue(Session& session, std::vector<uint64_t>& epochs) {
  while (true) {
    const auto due = session.PullEvaluation();
    ASSERT_TRUE(due.ok()) << due.status();
    if (!due->has_value()) return;
    ExpectValuesAfter((*due)->epoch, session);
    epochs.push_back((*due)->epoch);
    Evaluation part;
    part.set_version((*due)->version);
    part.set_epoch((*due)->epoch);
    part.set_samples((*due)->samples.end() - (*due)->samples.begin());
    const absl::Status reported = session.ReportEvaluation(part).status();
    ASSERT_TRUE(reported.ok()) << reported;
    const absl::Status pulled = session.Pull();
    ASSERT_TRUE(pulled.ok()) << pulled;
  }
}

TEST_P(BackupContract, TheSlowOneIsLeftOutGoesOnAndEvaluatesWhatTheOthersDo) {
  auto cluster = MakeCluster(3, 2, "epochs: 2 consistency { sync { reduction: SUM backup: 1 } }");
  absl::Notification caught_up;  // the slow one
  cluster->RunWorkers(3, [&](Session& session) {
    StartTraining(session, kSamples, /*test_samples=*/100);
    const bool slow = session.ordinal() == kSlow;
    std::vector<uint64_t> evaluated;
    uint64_t last = 0;
    while (const auto plan = session.NextStep()) {
      EXPECT_GT(plan->step, last);
      last = plan->step;
      if (slow && plan->step == 1) {
        // Until the others are in the next data epoch.
        ASSERT_TRUE(cluster->coordinator().AwaitStep(kEpochSteps + 1));
      }
      if (!slow && plan->step == kEpochSteps + 3) {
        ASSERT_TRUE(caught_up.WaitForNotificationWithTimeout(absl::Minutes(1)));
      }
      PushGradients(session, *plan);
      const auto verdict = session.Complete(0);
      ASSERT_TRUE(verdict.ok()) << verdict.status();
      EXPECT_EQ(verdict->step(), plan->step);
      if (slow && plan->step == 1) {
        EXPECT_EQ(verdict->outcome(), Verdict::STALE);
        EXPECT_EQ(session.version(), 0);
      } else if (plan->step <= kEpochSteps) {
        EXPECT_EQ(verdict->outcome(), Verdict::APPLY);
        ASSERT_EQ(verdict->shares_size(), 2);
        EXPECT_EQ(verdict->shares(0).contributor(), 0);
        EXPECT_EQ(verdict->shares(1).contributor(), 1);
      }
      const absl::Status pulled = session.Pull();
      ASSERT_TRUE(pulled.ok()) << pulled;
      if (slow && plan->step == 1) {
        EXPECT_GT(session.version(), kEpochSteps);
      }
      EvaluateWhatIsDue(session, evaluated);
      if (testing::Test::HasFatalFailure()) return;
      if (slow && !caught_up.HasBeenNotified()) caught_up.Notify();
    }
    EXPECT_EQ(evaluated, std::vector<uint64_t>({1, 2}));
    ExpectValuesAfter(2, session);
    ExpectTheEnd(session);
  });
  const GetStatusReply status = cluster->Status();
  EXPECT_EQ(status.samples(), 2 * kSamples);
  EXPECT_EQ(status.retried_attempts(), 0);
  ASSERT_EQ(status.evaluations_size(), 2);
  for (const Evaluation& evaluation : status.evaluations()) {
    EXPECT_EQ(evaluation.samples(), 100);
  }
}

// Whoever has the last samples is waited for, however slow it is.
TEST_P(BackupContract, TheSlowOnesSamplesAreUsedToo) {
  auto cluster = MakeCluster(3, 1, "epochs: 1 consistency { sync { reduction: SUM backup: 2 } }");
  cluster->RunWorkers(3, [&](Session& session) {
    // 4 samples: all of them contributor 0's.
    StartTraining(session, 4);
    while (const auto plan = session.NextStep()) {
      EXPECT_EQ(plan->samples.size(), session.ordinal() == 0 ? 4 : 0);
      PushGradients(session, *plan);
      const auto verdict = session.Complete(0);
      ASSERT_TRUE(verdict.ok()) << verdict.status();
      if (session.ordinal() == 0) {
        EXPECT_EQ(verdict->outcome(), Verdict::APPLY);
      }
      ASSERT_TRUE(session.Pull().ok());
    }
    EXPECT_EQ(session.version(), 1);
    ExpectTheEnd(session);
  });
  EXPECT_EQ(cluster->Status().samples(), 4);
}

}  // namespace
}  // namespace parley
